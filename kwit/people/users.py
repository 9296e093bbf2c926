"""Users and groups in the admin: Django's own pages with tenants and without privilege escalation."""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth import get_permission_codename, get_user_model
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _

from ..models import Membership
from .groups import labelled
from .members import may_manage, noted, tenant_name
from .tenants import sees, within
from .tokens import revoke_tokens_of


def grantable(request: HttpRequest, name: str) -> QuerySet[Any]:
    """Return the permissions or the groups that somebody may give: those with nothing that he has not got."""
    own = request.user.get_all_permissions()
    if name == "groups":
        return Group.objects.exclude(permissions__in=labelled().exclude(label__in=own)).order_by("name")
    return labelled().filter(label__in=own).select_related("content_type").order_by("label")


def manages(request: HttpRequest, other: Any) -> bool:
    """Whether the editor may manage this account or group; Django asks a dozen times a page, the database is once."""
    known: dict[Any, bool] = request.__dict__.setdefault("_kwit_manages", {})
    key = (type(other), other.pk)
    if key not in known:
        known[key] = may_manage(request.user, other)
    return known[key]


class Guarded(admin.ModelAdmin):  # type: ignore[type-arg]
    """Accounts and groups within what the editor may do himself; superusers manage all."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may change users or groups, when this one may do nothing more than he."""
        return super().has_change_permission(request, obj) and (obj is None or manages(request, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """As for changes."""
        return super().has_delete_permission(request, obj) and (obj is None or manages(request, obj))

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Offer what the editor may give."""
        if db_field.name in ("groups", "user_permissions", "permissions") and not request.user.is_superuser:
            kwargs["queryset"] = grantable(request, db_field.name)
        return super().formfield_for_manytomany(db_field, request, **kwargs)


class MembershipForm(forms.ModelForm):  # type: ignore[type-arg]
    """One tenant of a user."""

    #: Set by the inline: who is editing.
    editor: Any = None

    class Meta:
        model = Membership
        fields = ("tenant",)

    def clean_tenant(self) -> str:
        """Refuse an invalid tenant name, and a tenant to which the editor does not belong."""
        name = tenant_name(self.cleaned_data["tenant"])
        if not sees(self.editor, name):
            raise ValidationError(_("You are not a member of this tenant."))
        return name


class MembershipInline(admin.TabularInline):  # type: ignore[type-arg]
    """The tenants of a user, on the user's page; for those who may change the user."""

    model = Membership
    form = MembershipForm
    extra = 1

    def get_formset(self, request: HttpRequest, obj: Model | None = None, **kwargs: Any) -> Any:
        """Let the forms know who is editing."""
        kwargs["form"] = type("MembershipForm", (self.form,), {"editor": request.user})
        return super().get_formset(request, obj, **kwargs)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the memberships in the editor's tenants."""
        return within(super().get_queryset(request), request.user)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may view users."""
        return may(request, "view") or may(request, "change")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody turns one membership into another: it ends, and another one begins."""
        return False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may change this user."""
        return may(request, "change") and (obj is None or manages(request, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may change this user."""
        return self.has_add_permission(request, obj)


def may(request: HttpRequest, action: str) -> bool:
    """Whether somebody has Django's own permission for users."""
    meta = get_user_model()._meta
    return request.user.has_perm(f"{meta.app_label}.{get_permission_codename(action, meta)}")


class MemberUserAdmin(Guarded, UserAdmin):  # type: ignore[type-arg]
    """Django's users, with their tenants."""

    inlines = (MembershipInline,)

    def get_inlines(self, request: HttpRequest, obj: Any) -> Any:
        """Return no tenants for a user who is not there yet."""
        return self.inlines if obj is not None else ()

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Only a superuser makes one."""
        fields = super().get_readonly_fields(request, obj)
        return fields if request.user.is_superuser else (*fields, "is_superuser")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save; who is deactivated loses all API tokens, also for the time when the account becomes active again."""
        super().save_model(request, obj, form, change)
        if change and "is_active" in form.changed_data and not obj.is_active:
            revoke_tokens_of(obj, now=timezone.now(), using=obj._state.db)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Save, and record who joined and who left."""
        super().save_formset(request, form, formset, change)
        if formset.model is not Membership:
            return
        actor, user = request.user.get_username(), form.instance
        for row in formset.deleted_objects:
            noted("leave", user, row.tenant, actor, row._state.db)
        for row in formset.new_objects:
            noted("join", user, row.tenant, actor, row._state.db)


class GuardedGroupAdmin(Guarded, GroupAdmin):  # type: ignore[misc]
    """Django's groups."""
