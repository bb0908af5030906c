"""Shared state in PostgreSQL, through psycopg. The procedures are in procedures.sql.

A map; each imports only from those above it.

    pool                 connections: few, kept, and looked at before they are used
    shortcuts            what most calls come to, in one statement each
    fast_path            the same for one queue
    database             statements and procedures, and what the server's errors mean
"""
