import json

from django.db.models import Count, F
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from . import sales
from .models import Event, Order


@require_GET
def events(request: HttpRequest) -> JsonResponse:
    found = Event.objects.annotate(left=Count("venue__seats") - F("sold"))
    return JsonResponse({"events": list(found.values("id", "title", "starts", "price", "left"))})


@csrf_exempt
@require_POST
def order(request: HttpRequest, event_id: int) -> JsonResponse:
    event = get_object_or_404(Event, pk=event_id)
    wish = json.loads(request.body)
    try:
        placed = sales.place_order(event, wish["email"], wish["count"], wish.get("discount"))
    except sales.SoldOut as error:
        return JsonResponse({"error": str(error)}, status=409)
    seats = [
        f"{ticket.seat.row}{ticket.seat.number}" for ticket in placed.tickets.select_related("seat")
    ]
    return JsonResponse({"code": placed.code, "total": placed.total, "seats": seats}, status=201)


@csrf_exempt
@require_POST
def cancel(request: HttpRequest, code: str) -> JsonResponse:
    order = get_object_or_404(Order, code=code)
    return JsonResponse({"cancelled": sales.cancel_order(order)})
