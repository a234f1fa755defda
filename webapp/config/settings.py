"""Django settings: everything that an operator may change comes from the environment and is checked here."""

import socket
from pathlib import Path

from webapp.config import env
from webapp.config.database import database_from_url
from webapp.config.site import embedded_redis_url, parley_home, secret_key

BASE_DIR = Path(__file__).resolve().parents[2]

PARLEY_HOME = parley_home()
SECRET_KEY = secret_key(PARLEY_HOME)
DEBUG = env.flag("PARLEY_DEBUG", default=False)
PARLEY_PORT = env.port("PARLEY_PORT", default=8000)
ALLOWED_HOSTS = env.words("PARLEY_ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.words("PARLEY_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    "daphne",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "servestatic",
    "django.contrib.staticfiles",
    "channels",
    "csp",
    "ninja",
    "registry",
    "webapp.accounts",
    "webapp.serving",
    "webapp.chat",
    "webapp.catalog",
    "webapp.ops",
    "webapp.api",
]

MIDDLEWARE = [
    "webapp.config.request_ids.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "webapp.config.urls"
ASGI_APPLICATION = "webapp.config.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {"default": database_from_url(env.text("DATABASE_URL"), sqlite_file=PARLEY_HOME / "parley.sqlite3")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Redis protocol: the broker, the channel layer and the token streams. Without REDIS_URL, the Valkey of `make up`.
REDIS_URL = env.url("REDIS_URL", schemes=("redis", "rediss")) or embedded_redis_url(PARLEY_HOME)
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "parley"},
    },
}

CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_DEFAULT_QUEUE = "node"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True

# The name under which this machine's node worker holds deployments; one node worker a name.
PARLEY_NODE = env.text("PARLEY_NODE", default=socket.gethostname())
PARLEY_ENGINE_THREADS = env.whole_number("PARLEY_ENGINE_THREADS", default=0, low=0, high=1024)  # 0: every core

PARLEY_MODEL_MEMORY = env.whole_number("PARLEY_MODEL_MEMORY", default=0, low=0, high=2**50)  # bytes; 0: all free ones

# The API: bytes of a request, requests of one version that may wait, and seconds until an answer has to begin.
PARLEY_API_MAX_BODY = env.whole_number("PARLEY_API_MAX_BODY", default=32 * 1024 * 1024, low=1024, high=2**31)
PARLEY_QUEUE_LIMIT = env.whole_number("PARLEY_QUEUE_LIMIT", default=256, low=1, high=1_000_000)
PARLEY_QUEUE_SECONDS = env.whole_number("PARLEY_QUEUE_SECONDS", default=600, low=1, high=86_400)

# Where models may be imported from and where their content lives.
PARLEY_BLOBS = env.folder("PARLEY_BLOBS", default=PARLEY_HOME / "blobs")
PARLEY_STAGING = env.folder("PARLEY_STAGING", default=PARLEY_HOME / "staging")
PARLEY_IMPORT_ROOTS = env.folders("PARLEY_IMPORT_ROOTS")
# Where a machine takes content that it lacks: a shared folder of blobs, or the site's address, asked with the token.
PARLEY_BLOB_SOURCE = env.text("PARLEY_BLOB_SOURCE")
PARLEY_NODE_TOKEN = env.text("PARLEY_NODE_TOKEN")

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "accounts:login"
LOGIN_REDIRECT_URL = "chat:home"
LOGOUT_REDIRECT_URL = "accounts:login"

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

# The browser libraries, each under its own prefix; only the folders that pages load from are served.
NODE_MODULES = BASE_DIR / "node_modules"
STATIC_URL = "static/"
STATIC_ROOT = PARLEY_HOME / "static"
STATICFILES_DIRS = [
    BASE_DIR / "static",
    ("vendor/markdown-it", NODE_MODULES / "markdown-it" / "dist" / "browser"),
    ("vendor/dompurify", NODE_MODULES / "dompurify" / "dist"),
    ("vendor/highlight", NODE_MODULES / "@highlightjs" / "cdn-assets" / "es"),
    ("vendor/idiomorph", NODE_MODULES / "idiomorph" / "dist"),
    ("vendor/noble-hashes", NODE_MODULES / "@noble" / "hashes"),
    ("vendor/inter", NODE_MODULES / "@fontsource-variable" / "inter" / "files"),
    ("vendor/jetbrains-mono", NODE_MODULES / "@fontsource-variable" / "jetbrains-mono" / "files"),
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "webapp.config.static_storage.HashedStaticStorage"},
}

# No inline script or style, no eval, images from the site itself only: model text can't reach out of the page.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    },
}
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

# Behind a proxy that speaks HTTPS and always sets X-Forwarded-Proto itself; otherwise a client could claim it.
PARLEY_HTTPS = env.flag("PARLEY_HTTPS", default=False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = PARLEY_HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if PARLEY_HTTPS else None

PARLEY_LOG_LEVEL = env.choice("PARLEY_LOG_LEVEL", among=("DEBUG", "INFO", "WARNING", "ERROR"), default="INFO")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s%(request)s: %(message)s"}},
    "filters": {"request": {"()": "webapp.config.request_ids.RequestIdFilter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["request"]}},
    "root": {"handlers": ["stderr"], "level": PARLEY_LOG_LEVEL},
    "loggers": {name: {"level": "WARNING"} for name in ("celery.worker.strategy", "celery.app.trace")},  # a line a task
}
