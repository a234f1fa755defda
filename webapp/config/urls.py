"""The site's addresses."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("accounts/", include("webapp.accounts.urls")),
    path("", include("webapp.ops.urls")),
    path("", include("webapp.chat.urls")),
]
