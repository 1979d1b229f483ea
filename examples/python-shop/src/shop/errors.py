"""Errors that callers of the services may want to catch."""


class ShopError(Exception):
    """Base class of all domain errors."""


class NotFound(ShopError):
    def __init__(self, what: str, key: object) -> None:
        super().__init__(f"no {what} {key!r}")
        self.what = what
        self.key = key


class InvalidQuantity(ShopError):
    pass


class EmailTaken(ShopError):
    pass


class SkuTaken(ShopError):
    pass


class CategoryCycle(ShopError):
    pass


class PriceMissing(ShopError):
    pass


class OutOfStock(ShopError):
    def __init__(self, variant_id: int, wanted: int, available: int) -> None:
        super().__init__(f"variant {variant_id}: {wanted} wanted, {available} available")
        self.variant_id = variant_id
        self.wanted = wanted
        self.available = available


class CartClosed(ShopError):
    pass


class EmptyCart(ShopError):
    pass


class CouponRejected(ShopError):
    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"coupon {code}: {reason}")
        self.reason = reason


class NoShippingRate(ShopError):
    pass


class InvalidTransition(ShopError):
    pass


class PaymentDeclined(ShopError):
    pass


class Overpayment(ShopError):
    pass


class IdempotencyConflict(ShopError):
    pass


class RefundTooLarge(ShopError):
    pass


class NothingToShip(ShopError):
    pass


class ReturnRejected(ShopError):
    pass


class ReviewRejected(ShopError):
    pass
