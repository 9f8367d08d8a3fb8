import assert from "node:assert/strict";
import { isIP } from "node:net";
import { describe, it } from "node:test";
import fc from "fast-check";
import { readRows } from "../../test/rows.ts";
import {
  createFilteredDnsLookup,
  createPublicOrListedAddressCheck,
  getUrlIpAddress,
  isIpAddressOrRange,
} from "./addresses.ts";

const rows = readRows<{
  refused: string[];
  ranges: { ranges: string[]; address: string; isAllowed: boolean }[];
  invalidRanges: string[];
}>(import.meta.filename);

describe("an address", () => {
  const isAdmitted = createPublicOrListedAddressCheck([]);

  for (const address of ["1.1.1.1", "172.15.0.1", "172.32.0.1", "9.255.255.255", "11.0.0.0", "100.128.0.1", "2a00::1"])
    it(`${address} is allowed`, () => assert.equal(isAdmitted(address), true));
  for (const address of ["::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::1", "2606:4700:4700::1111", "3fff:1::"])
    it(`${address} is allowed`, () => assert.equal(isAdmitted(address), true));

  for (const [kind, addresses] of Object.entries(rows.refused))
    for (const address of addresses)
      it(`"${address}" is not allowed: it is ${kind}`, () => assert.equal(isAdmitted(address), false));

  for (const { ranges, address, isAllowed } of rows.ranges)
    it(`${address} ${isAllowed ? "is" : "isn't"} allowed by ${ranges.join(" and ")}`, () =>
      assert.equal(createPublicOrListedAddressCheck(ranges)(address), isAllowed));

  it("an address is allowed or refused in the same way in each notation", () => {
    fc.assert(
      fc.property(fc.ipV4(), (address) => {
        const isAllowed = isAdmitted(address);
        const number = address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
        const hex = number.toString(16).padStart(8, "0");
        for (const embedded of [
          `::ffff:${address}`,
          `64:ff9b::${address}`,
          `2002:${hex.slice(0, 4)}:${hex.slice(4)}::`,
        ])
          assert.equal(isAdmitted(embedded), isAllowed, embedded);
      }),
    );
  });

  it("an address is accepted in each notation that Node accepts", () => {
    fc.assert(
      fc.property(fc.oneof(fc.ipV6(), fc.ipV4(), fc.string()), (text) => {
        if (isIP(text) !== 0) assert.equal(isIpAddressOrRange(text), true, text);
        assert.equal(typeof isAdmitted(text), "boolean");
      }),
    );
  });

  it("an address is read from a URL, unless the URL has a host name", () => {
    const hosts = { "http://[::1]:80/": "::1", "http://0x7f.1/": "127.0.0.1", "http://a.b/": undefined };
    for (const [url, address] of Object.entries(hosts)) assert.equal(getUrlIpAddress(new URL(url)), address);
  });
});

describe("a range", () => {
  for (const text of ["10.0.0.0/8", "127.0.0.1", "0.0.0.0/0", "::/0", "fd00::/8", "::1", "10.0.0.0/32"])
    it(`is ${text}`, () => assert.equal(isIpAddressOrRange(text), true));
  for (const text of rows.invalidRanges) it(`is not "${text}"`, () => assert.equal(isIpAddressOrRange(text), false));
});

describe("a look-up", () => {
  const lookUp = (isAdmitted: (address: string) => boolean, options: { all: boolean }, name = "127.0.0.1") =>
    new Promise<unknown[]>((resolve) =>
      createFilteredDnsLookup(isAdmitted)(name, options, (...found) => resolve(found)),
    );

  it("a host look-up returns the allowed addresses of the host", async () => {
    assert.deepEqual(await lookUp(() => true, { all: false }), [null, "127.0.0.1", 4]);
    assert.deepEqual(await lookUp(() => true, { all: true }), [null, [{ address: "127.0.0.1", family: 4 }]]);
  });
  it("a host look-up fails if the host has no allowed address", async () => {
    for (const all of [true, false]) {
      const [error] = await lookUp(createPublicOrListedAddressCheck([]), { all }, "localhost");
      assert.match(String(error), /^Error: it has no address that may be called, but .*127\.0\.0\.1|::1/);
    }
  });
  it("a host look-up fails like Node's lookup for an unknown name", async () => {
    const [error] = await lookUp(() => true, { all: true }, "nowhere.invalid");
    assert.match(String(error), /ENOTFOUND|EAI_AGAIN/);
  });
});
