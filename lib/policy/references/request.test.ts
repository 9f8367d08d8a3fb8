import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { addressOf, bodyOf, headersOf, isAmong, isHost, methodOf } from "./request.ts";

describe("an address", () => {
  const addresses: [url: string, params: Record<string, string> | undefined, href: string][] = [
    ["http://mock/x", undefined, "http://mock/x"],
    ["http://mock/x", {}, "http://mock/x"],
    ["http://mock/x", { q: "default", z: "a b" }, "http://mock/x?q=default&z=a+b"],
    ["http://mock/x", { z: "1", a: "2" }, "http://mock/x?a=2&z=1"],
    ["http://mock/x?b=1", { a: "2" }, "http://mock/x?b=1&a=2"],
    ["http://mock/x?", { a: "2" }, "http://mock/x?a=2"],
    ["http://mock/x#f", { a: "2" }, "http://mock/x?a=2#f"],
    ["http://mock", { a: "&=/~*'()" }, "http://mock/?a=%26%3D%2F~%2A%27%28%29"],
    ["http://mock/x?a={b}", undefined, "http://mock/x?a={b}"],
  ];
  for (const [url, params, href] of addresses)
    it(`is ${href} of ${url} and ${JSON.stringify(params)}`, () =>
      assert.equal(addressOf(url, "url", params).href, href));

  it("has every parameter as it was given", () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string({ unit: "grapheme" }), fc.string({ unit: "grapheme" })), (params) => {
        const { searchParams } = addressOf("http://mock/", "url", params);
        assert.deepEqual(Object.fromEntries(searchParams), { ...params });
      }),
    );
  });
  for (const url of ["", "x", "/a", "ftp://a/", "javascript:1", "http://", undefined, null, 1, {}])
    it(`is not ${JSON.stringify(url)}`, () =>
      assert.throws(() => addressOf(url, "auth.authUrl"), /^Error: auth\.authUrl must be an address that begins with/));
});

describe("a request", () => {
  it("has a method in capitals", () => {
    assert.equal(methodOf("post", ["GET", "POST"]), "POST");
    assert.equal(methodOf(undefined, ["POST"]), "GET");
    assert.equal(methodOf("", ["POST"]), "GET");
    for (const other of ["PUT", "CONNECT", 1, null, {}])
      assert.throws(() => methodOf(other, ["GET", "POST"]), /^Error: method must be one of GET, POST$/);
  });
  it("has the body that is given", () => {
    assert.deepEqual([0, "", false, {}].map(bodyOf), ["0", '""', "false", "{}"]);
    assert.deepEqual([undefined, null].map(bodyOf), [undefined, undefined]);
  });
  it("has headers in lower case, and the length of its body", () => {
    assert.deepEqual(headersOf({ "X-A": "b", c: null }, "ä"), { "x-a": "b", "content-length": "2" });
    assert.deepEqual(headersOf({}, undefined), {});
    assert.deepEqual(Object.keys(headersOf(JSON.parse('{"__proto__":"x"}'), undefined)), ["__proto__"]);
  });
  it("has no header that says where it goes or how", () => {
    for (const name of ["Host", "connection", "TE", "Upgrade", "Expect", "Proxy-Connection", "content-length"])
      assert.throws(() => headersOf({ [name]: "x" }, undefined), /^Error: header must not have /);
  });
});

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
