"""Views of the read-only API: index, one page of a list, one row, OpenAPI."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from ..admin.filters import Filter
from ..admin.keyset import AFTER
from .authentication import staff_endpoint
from .encoding import encoded, with_id_texts
from .problems import CONTENT_TYPE, not_found
from .resources import (
    LIMIT,
    LIMIT_ROWS,
    LIMIT_ROWS_MAX,
    TEXT,
    Resource,
    Source,
    array_of,
    filter_schema,
    get_resource,
    get_source,
    object_of,
    properties_of,
    read_query,
    sources_for,
)

VERSION = "1"


def answer(content: dict[str, Any], **headers: str) -> HttpResponse:
    """Return a JSON answer."""
    return HttpResponse(encoded(with_id_texts(content)), content_type="application/json", headers=headers)


@staff_endpoint
def index(request: HttpRequest) -> HttpResponse:
    """List the resources of this user with their columns and filters."""
    read_query(request, ())
    listed = [described(source, request) for source in sources_for(request)]
    return answer({"version": VERSION, "openapi": reverse("kwit:api-openapi"), "resources": listed})


def described(source: Source, request: HttpRequest) -> dict[str, Any]:
    """Return what the index says of a source."""
    found: dict[str, Any] = {
        "name": source.name,
        "url": reverse("kwit:api-list", args=[source.name]),
        "about": source.about,
        "filters": [filter_of(one) for one in source.filters(request)],
    }
    if isinstance(source, Resource):
        found["fields"] = properties_of(source.columns)
        found["detail_fields"] = properties_of(source.details)
        found["limit_max"] = LIMIT_ROWS_MAX
    return found


def filter_of(one: Filter) -> dict[str, Any]:
    """Return what the index says of a filter."""
    return {"name": one.name, "about": str(one.label), "schema": filter_schema(one)}


@staff_endpoint
def listing(request: HttpRequest, name: str) -> HttpResponse:
    """Answer with one page of a list; ``next`` leads to the next one."""
    source = get_source(request, name)
    content = source.answer(request)
    if not isinstance(source, Resource):
        return answer(content)
    if not content["next"]:
        return answer({**content, "next": None})
    following = urlencode({**request.GET.dict(), AFTER: content["next"]})
    url = f"{reverse('kwit:api-list', args=[name])}?{following}"
    return answer({**content, "next": url}, Link=f'<{url}>; rel="next"')


@staff_endpoint
def one(request: HttpRequest, name: str, key: str) -> HttpResponse:
    """Answer with one row."""
    return answer(get_resource(request, name).answer_one(request, key))


@staff_endpoint
def unknown(request: HttpRequest) -> HttpResponse:
    """Answer 404 for an unknown URL."""
    raise not_found()


@staff_endpoint
def openapi(request: HttpRequest) -> HttpResponse:
    """Describe the resources of this user as OpenAPI 3.1."""
    read_query(request, ())
    paths: dict[str, Any] = {}
    for source in sources_for(request):
        url = reverse("kwit:api-list", args=[source.name])
        paths[url] = {"get": list_operation(source, request)}
        if isinstance(source, Resource):
            paths[f"{url}/{{key}}"] = {"get": row_operation(source)}
    return answer(
        {
            "openapi": "3.1.0",
            "info": {"title": "Kwit", "version": VERSION, "description": "Reads only; see docs/api.md."},
            "paths": paths,
            "components": {
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
                "schemas": {"Problem": PROBLEM},
            },
            "security": [{"token": []}],
        }
    )


PROBLEM = {
    "type": "object",
    "properties": {
        "type": TEXT,
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": TEXT,
        "errors": array_of({"type": "object", "properties": {"where": TEXT, "problem": TEXT}}),
    },
}


def list_operation(source: Source, request: HttpRequest) -> dict[str, Any]:
    """Return the operation that lists, or answers."""
    taken = [
        {"name": one.name, "in": "query", "description": str(one.label), "schema": filter_schema(one)}
        for one in source.filters(request)
    ]
    content: dict[str, Any] = {"type": "object"}
    if isinstance(source, Resource):
        limits = {"type": "integer", "minimum": 1, "maximum": LIMIT_ROWS_MAX, "default": LIMIT_ROWS}
        taken.append({"name": LIMIT, "in": "query", "description": "Rows of a page", "schema": limits})
        taken.append({"name": AFTER, "in": "query", "description": "The cursor that “next” holds", "schema": TEXT})
        items = {"items": array_of(object_of(source.columns)), "next": {"type": ["string", "null"]}}
        content = {"type": "object", "properties": items}
    return operation(source.name, source.about, taken, content)


def row_operation(source: Resource) -> dict[str, Any]:
    """Return the operation that shows one row."""
    key = {"name": "key", "in": "path", "required": True, "schema": source.columns[0].schema}
    content = dict(object_of([*source.columns, *source.details]))
    return operation(f"{source.name}-one", f"One row: {source.about}", [key], content)


def operation(name: str, about: str, taken: list[dict[str, Any]], content: dict[str, Any]) -> dict[str, Any]:
    """Return an operation with its answers."""
    refused = {
        "description": "A refusal, RFC 9457",
        "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    answered = {"description": "The answer", "content": {"application/json": {"schema": content}}}
    return {
        "operationId": name,
        "summary": about,
        "parameters": taken,
        "responses": {"200": answered, "default": refused},
    }
