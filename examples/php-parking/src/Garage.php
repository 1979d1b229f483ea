<?php

/** Lets cars in while there are places, and charges them when they leave. */
final class Garage
{
    public function __construct(private PDO $db, private string $name)
    {
    }

    /** Returns the number of the ticket. */
    public function enter(string $plate): int
    {
        $this->db->beginTransaction();
        try {
            // The lock makes cars pass the gate one after the other.
            $gate = $this->db->prepare('SELECT places FROM garages WHERE name = ? FOR UPDATE');
            $gate->execute([$this->name]);
            if ($this->parked() >= $gate->fetchColumn()) {
                throw new DomainException("$this->name is full");
            }
            $stay = $this->db->prepare('INSERT INTO stays (garage, plate) VALUES (?, ?) RETURNING ticket');
            $stay->execute([$this->name, $plate]);
            $ticket = $stay->fetchColumn();
            $this->db->commit();
            return $ticket;
        } catch (Throwable $failure) {
            $this->db->rollBack();
            throw $failure;
        }
    }

    /** Returns the price in cents: 100 for each hour that has begun. */
    public function leave(int $ticket, int $minutes): int
    {
        $stay = $this->db->prepare('UPDATE stays SET minutes = ? WHERE ticket = ? AND minutes IS NULL');
        $stay->execute([$minutes, $ticket]);
        if ($stay->rowCount() === 0) {
            throw new DomainException("ticket $ticket is not valid");
        }
        return 100 * (int) ceil($minutes / 60);
    }

    public function parked(): int
    {
        $stays = $this->db->prepare('SELECT count(*) FROM stays WHERE garage = ? AND minutes IS NULL');
        $stays->execute([$this->name]);
        return $stays->fetchColumn();
    }
}
