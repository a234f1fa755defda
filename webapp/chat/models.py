"""Conversations and their messages: a tree, in which a regenerated reply is a sibling."""

import uuid

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now

MAX_SEED = 2**53 - 1  # the largest whole number that a browser holds exactly


class Conversation(models.Model):
    """One person's conversation with one model, and how its replies are drawn.

    Deleting sets `deleted_at`, so that it can be undone. Until somebody sets a temperature, replies are the likeliest
    ones: small models say other things about France's capital when drawn at random.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="conversations")
    title = models.CharField(max_length=200, blank=True)
    version = models.ForeignKey("registry.Version", on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    alias = models.CharField(max_length=64, blank=True, help_text="Of the version's model; replies follow it.")
    system_prompt = models.TextField(blank=True)
    temperature = models.FloatField(default=0, validators=[MinValueValidator(0), MaxValueValidator(2)])
    top_p = models.FloatField(default=0.95, validators=[MinValueValidator(0), MaxValueValidator(1)])
    top_k = models.IntegerField(default=0, validators=[MinValueValidator(0), MaxValueValidator(1_000_000)])
    max_tokens = models.PositiveIntegerField(
        default=1024, validators=[MinValueValidator(1), MaxValueValidator(1_000_000)])
    seed = models.BigIntegerField(
        null=True, blank=True, validators=[MinValueValidator(0), MaxValueValidator(MAX_SEED)])
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now())
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-updated_at"]
        indexes = [models.Index(fields=["owner", "-updated_at"], name="conversation_owner_updated")]

    def __str__(self) -> str:
        return self.title or "New conversation"

    @property
    def model_name(self) -> str:
        """What answers here: `smollm2:1`, or `smollm2@production` where replies follow an alias; empty for nothing."""
        if self.version is None:
            return ""
        return f"{self.version.model.name}@{self.alias}" if self.alias else str(self.version)


class MessageRole(models.TextChoices):
    USER = "user", "User"
    ASSISTANT = "assistant", "Assistant"


class Message(models.Model):
    """One turn. A user's text is in `content`; a reply's text is its generation's, the only copy."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="messages")
    parent = models.ForeignKey("self", on_delete=models.CASCADE, null=True, blank=True, related_name="children")
    role = models.CharField(max_length=16, choices=MessageRole.choices)
    content = models.TextField(blank=True)
    generation = models.OneToOneField("serving.Generation", on_delete=models.RESTRICT, null=True, blank=True,
                                      related_name="message")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        # A user's message and its reply come from one transaction, so from one instant: the user's goes first.
        ordering = ["created_at", "-role"]

    def __str__(self) -> str:
        return f"{self.role} {self.id}"

    @property
    def text(self) -> str:
        return self.generation.text if self.generation else self.content
