"""Addresses of the registry's pages."""

from django.urls import path

from webapp.catalog import actions, register, views

app_name = "catalog"
urlpatterns = [
    path("", views.catalog, name="list"),
    path("workers/", views.workers, name="workers"),
    path("tokenizer/", views.tokenizer, name="tokenizer"),
    path("register/", register.register, name="register"),
    path("imports/<uuid:pk>/", register.import_page, name="import"),
    path("imports/<uuid:pk>/cancel/", register.import_cancelled, name="import_cancel"),
    path("uploads/", register.upload_begun, name="uploads"),
    path("uploads/<uuid:pk>/", register.upload, name="upload"),
    path("uploads/<uuid:pk>/<int:file>/<int:chunk>/", register.upload_chunk, name="upload_chunk"),
    path("uploads/<uuid:pk>/finish/", register.upload_finish, name="upload_finish"),
    path("uploads/<uuid:pk>/cancel/", register.upload_cancel, name="upload_cancel"),
    path("m/<str:name>/", views.model, name="model"),
    path("m/<str:name>/edit/", actions.model_edit, name="model_edit"),
    path("m/<str:name>/compare/", views.compare, name="compare"),
    path("m/<str:name>/aliases/", actions.alias_set, name="alias_set"),
    path("m/<str:name>/aliases/<str:alias>/back/", actions.alias_back, name="alias_back"),
    path("m/<str:name>/aliases/<str:alias>/remove/", actions.alias_remove, name="alias_remove"),
    path("m/<str:name>/<int:number>/", views.version, name="version"),
    path("m/<str:name>/<int:number>/plan/", views.plan, name="plan"),
    path("m/<str:name>/<int:number>/edit/", actions.version_edit, name="version_edit"),
    path("m/<str:name>/<int:number>/load/", actions.load, name="load"),
    path("m/<str:name>/<int:number>/do/<str:action>/", actions.version_act, name="version_act"),
    path("deployments/<int:pk>/load/", actions.load_again, name="load_again"),
    path("deployments/<int:pk>/unload/", actions.unload, name="unload"),
]
