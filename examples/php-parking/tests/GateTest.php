<?php

require_once __DIR__ . '/DatabaseTestCase.php';
require_once __DIR__ . '/../src/Garage.php';

final class GateTest extends DatabaseTestCase
{
    public function testTheFirstTicketIsNumber1(): void
    {
        $this->assertSame(1, (new Garage($this->db, 'North'))->enter('B-AB 1'));
    }

    public function testTheGarageBeginsEmpty(): void
    {
        $garage = new Garage($this->db, 'North');
        $this->assertSame(0, $garage->parked());
        $this->assertSame(1, $garage->enter('B-AB 1'));
    }

    public function testAFullGarageLetsNoCarIn(): void
    {
        $garage = new Garage($this->db, 'Court');
        $garage->enter('B-AB 1');
        $this->expectException(DomainException::class);
        $garage->enter('B-AB 2');
    }

    public function testACarIsInOneGarage(): void
    {
        (new Garage($this->db, 'Court'))->enter('B-AB 1');
        $this->expectException(PDOException::class);
        (new Garage($this->db, 'North'))->enter('B-AB 1');
    }

    public function testAnotherSessionSeesWhatIsCommitted(): void
    {
        (new Garage($this->db, 'Court'))->enter('B-AB 1');
        $name = $this->db->query('SELECT current_database()')->fetchColumn();
        $other = new PDO("pgsql:dbname=$name");
        $this->assertSame(1, (new Garage($other, 'Court'))->parked());
    }
}
