import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import {
  buildPolicyRequestHeaders,
  buildReferenceUrl,
  isAllowedHost,
  isHostEntry,
  parseMethod,
  toJsonRequestBody,
} from "./request.ts";

interface Cases {
  addresses: { url: string; params?: Record<string, string>; href: string }[];
  hosts: { host: string; url: string; allowed: boolean }[];
  validHosts: string[];
  invalidHosts: string[];
}
const cases: Cases = parse(readFileSync(new URL("requests.yaml", import.meta.url), "utf8"));

describe("an address", () => {
  for (const { url, params, href } of cases.addresses)
    it(`of ${url} with the parameters ${JSON.stringify(params)} is ${href}`, () =>
      assert.equal(buildReferenceUrl(url, "url", params).href, href));

  it("an address keeps every parameter", () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string({ unit: "grapheme" }), fc.string({ unit: "grapheme" })), (params) => {
        const { searchParams } = buildReferenceUrl("http://mock/", "url", params);
        assert.deepEqual(Object.fromEntries(searchParams), { ...params });
      }),
    );
  });
  for (const url of ["", "x", "/a", "ftp://a/", "javascript:1", "http://", undefined, null, 1, {}])
    it(`can't be ${JSON.stringify(url)}`, () =>
      assert.throws(
        () => buildReferenceUrl(url, "auth.authUrl"),
        /^Error: auth\.authUrl must be an address that begins with/,
      ));
});

describe("a request", () => {
  it("a request has its method in capitals, is a GET by default, and has no other method than the allowed ones", () => {
    assert.equal(parseMethod("post", ["GET", "POST"]), "POST");
    assert.equal(parseMethod(undefined, ["POST"]), "GET");
    assert.equal(parseMethod("", ["POST"]), "GET");
    for (const method of ["PUT", "CONNECT", 1, null, {}])
      assert.throws(() => parseMethod(method, ["GET", "POST"]), /^Error: method must be one of GET, POST$/);
  });
  it("a request has its body as JSON; undefined and null are no body", () => {
    assert.deepEqual([0, "", false, {}].map(toJsonRequestBody), ["0", '""', "false", "{}"]);
    assert.deepEqual([undefined, null].map(toJsonRequestBody), [undefined, undefined]);
  });
  it("a request has headers in lower case and the length of its body", () => {
    assert.deepEqual(buildPolicyRequestHeaders({ "X-A": "b", c: null }, "ä"), { "x-a": "b", "content-length": "2" });
    assert.deepEqual(buildPolicyRequestHeaders({}, undefined), {});
    assert.deepEqual(Object.keys(buildPolicyRequestHeaders(JSON.parse('{"__proto__":"x"}'), undefined)), ["__proto__"]);
  });
  it("a request must not have headers of the connection or the transfer", () => {
    for (const name of ["Host", "connection", "TE", "Upgrade", "Expect", "Proxy-Connection", "content-length"])
      assert.throws(() => buildPolicyRequestHeaders({ [name]: "x" }, undefined), /^Error: header must not set /);
  });
});

describe("a listed host", () => {
  for (const { host, url, allowed } of cases.hosts)
    it(`${allowed ? "allows" : "doesn't allow"} ${url} with "${host}"`, () =>
      assert.equal(isAllowedHost([host], new URL(url)), allowed));
  for (const host of cases.validHosts) it(`can be ${host}`, () => assert.equal(isHostEntry(host), true));
  for (const host of cases.invalidHosts) it(`can't be "${host}"`, () => assert.equal(isHostEntry(host), false));
});
