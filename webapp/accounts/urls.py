"""Addresses of the accounts app: signing in and out with Django's own views, API keys and usage."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from webapp.accounts import views

app_name = "accounts"
urlpatterns = [
    path("login/", LoginView.as_view(template_name="accounts/login.html", redirect_authenticated_user=True),
         name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("keys/", views.keys, name="keys"),
    path("keys/<int:pk>/revoke/", views.key_revoke, name="key_revoke"),
    path("usage/", views.usage, name="usage"),
]
