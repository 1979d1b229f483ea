<?php

use PHPUnit\Framework\TestCase;

abstract class DatabaseTestCase extends TestCase
{
    protected PDO $db;

    protected function setUp(): void
    {
        // A new name is a fresh, migrated database. Host, user and password come from PG*.
        $this->db = new PDO('pgsql:dbname=test_' . bin2hex(random_bytes(8)));
    }

    protected function tearDown(): void
    {
        unset($this->db);
    }
}
