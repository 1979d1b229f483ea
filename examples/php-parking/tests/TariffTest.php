<?php

require_once __DIR__ . '/DatabaseTestCase.php';
require_once __DIR__ . '/../src/Garage.php';

final class TariffTest extends DatabaseTestCase
{
    /** @dataProvider prices */
    public function testAnHourThatHasBegunIsCharged(int $minutes, int $cents): void
    {
        $garage = new Garage($this->db, 'North');
        $this->assertSame($cents, $garage->leave($garage->enter('B-AB 1'), $minutes));
        $this->assertSame(0, $garage->parked());
    }

    public static function prices(): array
    {
        return [[0, 0], [1, 100], [60, 100], [61, 200], [1440, 2400]];
    }

    public function testATicketIsValidOnce(): void
    {
        $garage = new Garage($this->db, 'North');
        $garage->leave($garage->enter('B-AB 1'), 5);
        $this->expectException(DomainException::class);
        $garage->leave(1, 5);
    }
}
