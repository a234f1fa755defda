"""Django settings: everything that an operator may change comes from the environment and is checked here."""

from pathlib import Path

import environ
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parents[2]
env = environ.Env()

PARLEY_HOME = Path(env.str("PARLEY_HOME", default=str(BASE_DIR / "var"))).resolve()


def _secret_key() -> str:
    """Return the key from PARLEY_SECRET_KEY, else the one that `make up` wrote once into PARLEY_HOME."""
    if value := env.str("PARLEY_SECRET_KEY", default=""):
        return value
    path = PARLEY_HOME / "secret_key"
    if path.exists():
        return path.read_text().strip()
    raise ImproperlyConfigured(f"PARLEY_SECRET_KEY is not set and {path} does not exist; `make up` creates it.")


SECRET_KEY = _secret_key()
DEBUG = env.bool("PARLEY_DEBUG", default=False)
PARLEY_PORT = env.int("PARLEY_PORT", default=8000)
ALLOWED_HOSTS = env.list("PARLEY_ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("PARLEY_TRUSTED_ORIGINS", default=[])

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
    "registry",
    "webapp.accounts",
    "webapp.serving",
    "webapp.chat",
    "webapp.ops",
]

MIDDLEWARE = [
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

# Database. SQLite wants IMMEDIATE transactions: a deferred one that turns into a writer fails at once with
# "database is locked" instead of waiting its turn.
DATABASE_URL = env.str("DATABASE_URL", default=f"sqlite:///{PARLEY_HOME / 'parley.sqlite3'}")
DATABASES = {"default": env.db_url_config(DATABASE_URL)}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        "timeout": 5,
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Redis protocol: the broker, the channel layer and the token streams. Without REDIS_URL, the embedded Valkey of
# `make up` on its loopback port.
PARLEY_VALKEY_PORT = env.int("PARLEY_VALKEY_PORT", default=PARLEY_PORT + 1)
REDIS_URL = env.str("REDIS_URL", default=f"redis://127.0.0.1:{PARLEY_VALKEY_PORT}/0")
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

# Where models may be imported from and where their content lives.
PARLEY_BLOBS = PARLEY_HOME / "blobs"
PARLEY_STAGING = PARLEY_HOME / "staging"

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
    ("vendor/inter", NODE_MODULES / "@fontsource-variable" / "inter" / "files"),
    ("vendor/jetbrains-mono", NODE_MODULES / "@fontsource-variable" / "jetbrains-mono" / "files"),
]

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
PARLEY_HTTPS = env.bool("PARLEY_HTTPS", default=False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = PARLEY_HTTPS

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.str("PARLEY_LOG_LEVEL", default="INFO")},
}
