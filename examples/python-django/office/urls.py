from django.urls import path

from tickets import views

urlpatterns = [
    path("events/", views.events),
    path("events/<int:event_id>/orders/", views.order),
    path("orders/<str:code>/cancel/", views.cancel),
]
