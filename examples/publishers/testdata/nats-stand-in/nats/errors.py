"""The errors of nats-py that programs catch."""
import asyncio


class Error(Exception):
    pass


class TimeoutError(Error, asyncio.TimeoutError):
    def __str__(self):
        return "nats: timeout"


class NoRespondersError(Error):
    def __str__(self):
        return "nats: no responders available for request"
