import assert from "node:assert/strict";
import { isIP } from "node:net";
import { describe, it } from "node:test";
import fc from "fast-check";
import { createAllowedAddressCheck, createFilteredLookup, getUrlIpAddress, isIpAddressOrRange } from "./addresses.ts";

describe("an address", () => {
  const isAdmitted = createAllowedAddressCheck([]);

  for (const address of ["1.1.1.1", "172.15.0.1", "172.32.0.1", "9.255.255.255", "11.0.0.0", "100.128.0.1", "2a00::1"])
    it(`${address} may be asked`, () => assert.equal(isAdmitted(address), true));
  for (const address of ["::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::1", "2606:4700:4700::1111", "3fff:1::"])
    it(`${address} may be asked`, () => assert.equal(isAdmitted(address), true));

  const refused = {
    "this machine's": ["127.0.0.1", "127.255.255.255", "::1", "0.0.0.0", "0.1.2.3", "::"],
    private: [
      "10.0.0.1",
      "172.16.0.1",
      "172.31.255.255",
      "192.168.1.1",
      "100.64.0.1",
      "100.127.255.255",
      "fc00::1",
      "fd12::",
    ],
    "link-local or metadata": [
      "169.254.169.254",
      "169.254.0.1",
      "fe80::1",
      "febf::1",
      "fd00:ec2::254",
      "100.100.100.200",
    ],
    "everybody's": ["224.0.0.1", "239.1.1.1", "ff02::1", "255.255.255.255", "240.0.0.1"],
    reserved: ["192.0.0.1", "198.18.0.1", "2001::1", "2001:db8::1", "fec0::1", "100::1", "4000::1", "64:ff9b:1::a00:1"],
    "one of those in another form": [
      ...["::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "::ffff:127.0.0.1", "::127.0.0.1", "::a9fe:a9fe"],
      ...["64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "2002:a00:1::", "2002:a9fe:a9fe::1", "2002:7f00:1::"],
      ...["0xa9fea9fe", "2852039166", "127.1", "0177.0.0.1", "::FFFF:169.254.169.254"],
    ],
    none: [
      "",
      "localhost",
      "a.b",
      "1.2.3.4.5",
      "fe80::1%eth0",
      "1.1.1.1/8",
      "[::1]",
      "1.1.1.1:80",
      "::1::1",
      "@1.1.1.1",
    ],
  };
  for (const [what, addresses] of Object.entries(refused))
    for (const address of addresses)
      it(`"${address}" may not be asked: it is ${what}`, () => assert.equal(isAdmitted(address), false));

  const examples: [ranges: string[], address: string, may: boolean][] = [
    [["10.0.0.0/8"], "10.255.0.1", true],
    [["10.0.0.0/8"], "::ffff:10.1.2.3", true],
    [["10.0.0.0/8"], "11.0.0.1", true],
    [["10.0.0.0/8"], "192.168.0.1", false],
    [["10.16.0.0/12"], "10.31.255.255", true],
    [["10.16.0.0/12"], "10.32.0.0", false],
    [["10.1.2.3"], "10.1.2.3", true],
    [["10.1.2.3"], "10.1.2.4", false],
    [["127.0.0.1/32"], "127.0.0.1", true],
    [["127.0.0.1/32"], "127.0.0.2", false],
    [["127.0.0.1/32"], "::1", false],
    [["::1/128"], "::1", true],
    [["fd12:3456::/32"], "fd12:3456:1::1", true],
    [["fd12:3456::/32"], "fd12:3457::1", false],
    [["169.254.0.0/16", "0.0.0.0/0"], "169.254.169.254", false],
    [["169.254.169.254/32"], "169.254.169.254", true],
    [["169.254.169.254"], "::ffff:169.254.169.254", true],
    [["169.254.169.254"], "169.254.169.253", false],
    [["::/0"], "fd00:ec2::254", false],
    [["::/0"], "fd00:ec3::254", true],
    [["fd00:ec2::254"], "fd00:ec2::254", true],
    [["100.64.0.0/10"], "100.100.100.200", false],
    [["fc00::/7"], "fd00:c1::a9fe:a9fe", false],
    [["192.0.0.0/24"], "192.0.0.192", false],
    [["2002::/16"], "0.0.0.1", false],
    [["nonsense", "10.0.0.0/99"], "10.0.0.1", false],
  ];
  for (const [ranges, address, may] of examples)
    it(`${address} ${may ? "may" : "may not"} be asked where ${ranges.join(" and ")} may`, () =>
      assert.equal(createAllowedAddressCheck(ranges)(address), may));

  it("is admitted or not in whatever form it is written", () => {
    fc.assert(
      fc.property(fc.ipV4(), (address) => {
        const may = isAdmitted(address);
        const number = address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
        const hex = number.toString(16).padStart(8, "0");
        for (const embedded of [
          `::ffff:${address}`,
          `64:ff9b::${address}`,
          `2002:${hex.slice(0, 4)}:${hex.slice(4)}::`,
        ])
          assert.equal(isAdmitted(embedded), may, embedded);
      }),
    );
  });

  it("is one for this as for Node", () => {
    fc.assert(
      fc.property(fc.oneof(fc.ipV6(), fc.ipV4(), fc.string()), (text) => {
        if (isIP(text) !== 0) assert.equal(isIpAddressOrRange(text), true, text);
        assert.equal(typeof isAdmitted(text), "boolean");
      }),
    );
  });

  it("is distinguished from a host name", () => {
    const hosts = { "http://[::1]:80/": "::1", "http://0x7f.1/": "127.0.0.1", "http://a.b/": undefined };
    for (const [url, address] of Object.entries(hosts)) assert.equal(getUrlIpAddress(new URL(url)), address);
  });
});

describe("a range", () => {
  for (const text of ["10.0.0.0/8", "127.0.0.1", "0.0.0.0/0", "::/0", "fd00::/8", "::1", "10.0.0.0/32"])
    it(`may be ${text}`, () => assert.equal(isIpAddressOrRange(text), true));
  for (const text of [
    "",
    "10.0.0.0/33",
    "::/129",
    "10.0.0/8",
    "010.0.0.0/8",
    "10.0.0.0/",
    "a.b",
    "10.0.0.0/8 ",
    "10/8",
    "1.2.3.256",
  ])
    it(`may not be "${text}"`, () => assert.equal(isIpAddressOrRange(text), false));
});

describe("a look-up", () => {
  const find = (isAdmitted: (address: string) => boolean, all: boolean, name = "127.0.0.1") =>
    new Promise<unknown[]>((resolve) => createFilteredLookup(isAdmitted)(name, { all }, (...found) => resolve(found)));

  it("finds what is admitted", async () => {
    assert.deepEqual(await find(() => true, false), [null, "127.0.0.1", 4]);
    assert.deepEqual(await find(() => true, true), [null, [{ address: "127.0.0.1", family: 4 }]]);
  });
  it("finds nothing else", async () => {
    for (const all of [true, false]) {
      const [error] = await find(createAllowedAddressCheck([]), all, "localhost");
      assert.match(String(error), /^Error: it has no address that may be called, but .*127\.0\.0\.1|::1/);
    }
  });
  it("fails as Node's does", async () => {
    const [error] = await find(() => true, true, "nowhere.invalid");
    assert.match(String(error), /ENOTFOUND|EAI_AGAIN/);
  });
});
