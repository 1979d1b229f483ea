import json

from django.test import TestCase

from .places import make_event


class Views(TestCase):
    def post(self, path, **body):
        return self.client.post(path, json.dumps(body), content_type="application/json")

    def test_selling_and_cancelling(self):
        event = make_event(seats=3)
        answer = self.post(f"/events/{event.pk}/orders/", email="ann@example.com", count=2)
        self.assertEqual(answer.status_code, 201)
        self.assertEqual(answer.json()["seats"], ["A1", "A2"])
        self.assertEqual(self.left(), [1])
        cancelled = self.post(f"/orders/{answer.json()['code']}/cancel/")
        self.assertEqual(cancelled.json(), {"cancelled": True})
        self.assertEqual(self.left(), [3])

    def test_sold_out(self):
        event = make_event(seats=1)
        answer = self.post(f"/events/{event.pk}/orders/", email="ann@example.com", count=2)
        self.assertEqual((answer.status_code, answer.json()), (409, {"error": "1 seats are left"}))

    def test_unknown_event(self):
        answer = self.post("/events/0/orders/", email="ann@example.com", count=1)
        self.assertEqual(answer.status_code, 404)

    def test_events_in_their_order(self):
        later, sooner = make_event(days=2), make_event(days=1)
        listed = [event["id"] for event in self.client.get("/events/").json()["events"]]
        self.assertEqual(listed, [sooner.pk, later.pk])

    def left(self):
        return [event["left"] for event in self.client.get("/events/").json()["events"]]
