"""The bus over RabbitMQ: encrypted, with client certificates and durable queues.

Needs the extra `amqp`.
"""
