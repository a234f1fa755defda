"""The Celery application: Django's settings, and how workers live through a broker that goes away."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.config.settings")

app = Celery("parley")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.update(
    # Celery's copies of what a worker has in hand, for when it dies, cost four round trips a message and aren't needed:
    # the database says what is unfinished, and the sweeper sends it again within seconds.
    broker_transport_options={"ack_emulation": False, "socket_keepalive": True, "socket_connect_timeout": 2,
                              "health_check_interval": 10},
    broker_connection_max_retries=None,  # for ever: a restarted Valkey must not end a worker
    worker_cancel_long_running_tasks_on_connection_loss=False,  # replies don't need the broker to go on
    worker_enable_remote_control=False,  # nothing sends it commands; what to load is read from the database
    worker_hijack_root_logger=False,  # Django's LOGGING stays
    worker_redirect_stdouts=False,
)
app.autodiscover_tasks(["webapp.serving"])
