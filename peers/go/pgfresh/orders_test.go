package pgfresh

import (
	"testing"

	"peers/orders"
)

func TestOrders(t *testing.T) { orders.Run(t, open) }
