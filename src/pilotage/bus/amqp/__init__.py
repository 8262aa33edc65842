"""The bus over RabbitMQ: encrypted, whoever comes shows a certificate, and nothing is lost.

`model` says where the broker is and who we are, `link` keeps one connection to it, `names` writes
topics and patterns as AMQP does, `bus` has the verbs. Needs the extra `amqp`.
"""
