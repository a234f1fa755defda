"""Addresses of the accounts app: signing in and out, with Django's own views."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

app_name = "accounts"
urlpatterns = [
    path("login/", LoginView.as_view(template_name="accounts/login.html", redirect_authenticated_user=True),
         name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
]
