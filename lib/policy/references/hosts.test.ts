import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { isAmong, isHost } from "./hosts.ts";

describe("a listed host", () => {
  const cases: [text: string, url: string, is: boolean][] = [
    ["api.example.com", "https://api.example.com/a", true],
    ["api.example.com", "https://API.example.com:443/", true],
    ["api.example.com", "http://api.example.com/", true],
    ["API.Example.com", "https://api.example.com/", true],
    ["api.example.com", "https://api.example.com:8443/", false],
    ["api.example.com", "http://api.example.com:443/", false],
    ["api.example.com", "https://other.api.example.com/", false],
    ["api.example.com", "https://api.example.com.evil.org/", false],
    ["api.example.com", "https://api.example.com@evil.org/", false],
    ["api.example.com", "https://evil.org/api.example.com", false],
    ["api.example.com", "https://api.example.com./", false],
    ["api.example.com:8443", "https://api.example.com:8443/", true],
    ["api.example.com:8443", "https://api.example.com/", false],
    ["api.example.com:443", "https://api.example.com/", true],
    ["api.example.com:443", "http://api.example.com/", false],
    ["api.example.com:0443", "https://api.example.com/", true],
    ["*.example.com", "https://a.example.com/", true],
    ["*.example.com", "https://a.b.example.com/", true],
    ["*.example.com", "https://example.com/", false],
    ["*.example.com", "https://evilexample.com/", false],
    ["*.example.com:81", "http://a.example.com:81/", true],
    ["*.example.com:81", "http://a.example.com/", false],
    ["127.0.0.1", "http://127.1/", true],
    ["[::1]:80", "http://[0::1]/", true],
    ["bücher.example", "https://xn--bcher-kva.example/", true],
    ["*", "https://a.example/", false],
    ["", "https://a.example/", false],
  ];
  for (const [text, url, is] of cases)
    it(`"${text}" ${is ? "is" : "is not"} that of ${url}`, () => assert.equal(isAmong([text], new URL(url)), is));

  for (const text of ["a", "a.b:1", "*.a.b", "1.2.3.4", "[::1]", "[::1]:8443", "mock"])
    it(`may be ${text}`, () => assert.equal(isHost(text), true));
  for (const text of [
    "",
    "*",
    "*.",
    "https://a",
    "a/b",
    "a:b",
    "a:",
    "a:70000",
    "a@b",
    "a b",
    "*.*.a",
    "a.*",
    "::1",
    "[x]",
    "a?b",
    "a\\b",
  ])
    it(`may not be "${text}"`, () => assert.equal(isHost(text), false));
});
