"""The site's addresses."""

from django.contrib import admin
from django.urls import include, path

admin.site.site_header = admin.site.site_title = "Parley administration"

urlpatterns = [
    path("admin/", admin.site.urls),
    path("accounts/", include("webapp.accounts.urls")),
    path("api/", include("webapp.api.page_urls")),
    path("", include("webapp.ops.urls")),
    path("", include("webapp.serving.urls")),
    path("catalog/", include("webapp.catalog.urls")),
    path("", include("webapp.chat.urls")),
]
