"""The registry's tables: model → versions → artifacts → blobs; who may use them, where they load, what was done."""

from registry.models.audit import Action, AuditEntry
from registry.models.catalog import NAME, NAME_PATTERN, Access, Alias, Kind, Model, Version, VersionState
from registry.models.contents import Artifact, Blob, Role
from registry.models.imports import ImportJob, ImportState, Upload, UploadState
from registry.models.machines import Deployment, DeploymentState, Node

__all__ = [
    "NAME", "NAME_PATTERN", "Access", "Action", "Alias", "Artifact", "AuditEntry", "Blob", "Deployment",
    "DeploymentState", "ImportJob", "ImportState", "Kind", "Model", "Node", "Role", "Upload", "UploadState", "Version",
    "VersionState",
]
