import { expect, test } from "vitest";
import { readConfig } from "../../src/config/environment.ts";
import { parseRedisUrl, type RedisUrl } from "../../src/config/redis-url.ts";

const none = { username: undefined, password: undefined, tls: false };
const accepted: { text: string; means: RedisUrl }[] = [
  {
    text: "redis://127.0.0.1:6379/2",
    means: { kind: "server", url: "redis://127.0.0.1:6379/2" },
  },
  {
    text: "rediss://:secret@cache.example.com",
    means: { kind: "server", url: "rediss://:secret@cache.example.com" },
  },
  {
    text: "redis://host?family=6",
    means: { kind: "server", url: "redis://host?family=6" },
  },
  {
    text: "redis+cluster://a:7000,b,[::1]:7002",
    means: {
      kind: "cluster",
      servers: [
        { host: "a", port: 7000 },
        { host: "b", port: 6379 },
        { host: "::1", port: 7002 },
      ],
      ...none,
    },
  },
  {
    text: "rediss+cluster://user:p%40ss@a",
    means: {
      kind: "cluster",
      servers: [{ host: "a", port: 6379 }],
      username: "user",
      password: "p@ss",
      tls: true,
    },
  },
  {
    text: "redis+sentinel://:pass@a,b:5000/main/3",
    means: {
      kind: "sentinel",
      servers: [
        { host: "a", port: 26_379 },
        { host: "b", port: 5000 },
      ],
      ...none,
      password: "pass",
      name: "main",
      db: 3,
    },
  },
];
for (const { text, means } of accepted) {
  test(`${text} is read`, () => expect(parseRedisUrl(text)).toEqual(means));
}

const rejected = [
  "http://localhost",
  "redis://a,b",
  "redis+cluster://",
  "redis+cluster://a,,b",
  "redis+cluster://a:70000",
  "redis+cluster://a/name",
  "redis+sentinel://a,b",
  "redis+sentinel://a/name/x",
  "redis+sentinel://:%zz@a/name",
  "redis+other://a",
];
for (const text of rejected) {
  test(`${text} is refused, without a secret in the message`, () => {
    const secret = text.replace("://", "://sesame:sesame@");
    for (const one of [text, secret])
      expect(() => readConfig({ REDIS_URL: one })).toThrow(/REDIS_URL: (?!.*sesame)/);
  });
}
