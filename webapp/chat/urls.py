"""Addresses of the chat app."""

from django.urls import path

from webapp.chat import views

app_name = "chat"
urlpatterns = [
    path("", views.home, name="home"),
    path("models/", views.models, name="models"),
    path("c/", views.create, name="create"),
    path("c/<uuid:pk>/", views.conversation, name="conversation"),
    path("c/<uuid:pk>/rename/", views.rename, name="rename"),
    path("c/<uuid:pk>/delete/", views.delete, name="delete"),
    path("c/<uuid:pk>/restore/", views.restore, name="restore"),
    path("c/<uuid:pk>/settings/", views.configure, name="settings"),
    path("c/<uuid:pk>/messages/", views.messages, name="messages"),
]
