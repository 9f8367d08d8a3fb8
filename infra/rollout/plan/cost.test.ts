import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { describe, it } from "node:test";
import fc from "fast-check";
import { asksCluster } from "#lib/needs.ts";
import { readCatalogue } from "../../catalogue/registry.ts";
import {
  buildCostTable,
  computeLedgerDollars,
  estimateDollarsPerMillionCalls,
  estimateMonths,
  ledgerUses,
  type MonthlyCost,
  natDollars,
  prices,
  type RuleCostFactors,
} from "./cost.ts";

const smallRule: RuleCostFactors = {
  memoryMegabytes: 256,
  milliseconds: 5,
  readsCluster: false,
  phases: 1,
  warmEnvironments: 0,
  ledgerDollars: 0,
};

describe("the cost of a million reviews", () => {
  /** Dollars for the log lines of a million reviews behind a function URL. */
  const log = 0.375;
  const examples: [name: string, use: RuleCostFactors, dollars: number][] = [
    ["a small rule", smallRule, 0.2217],
    ["a rule that reads its cluster", { ...smallRule, milliseconds: 30, readsCluster: true }, 0.31],
    ["a rule with four times the memory", { ...smallRule, memoryMegabytes: 1024 }, 0.2867],
    ["a rule that takes a second for each review", { ...smallRule, milliseconds: 1000 }, 3.5384],
    ["a rule with a ledger", { ...smallRule, ledgerDollars: 2.75 }, 2.9717],
    ["a rule without memory, which has only the price of requests", { ...smallRule, memoryMegabytes: 0 }, 0.2],
  ];
  for (const [name, use, dollars] of examples)
    it(`is ${dollars} dollars, and the price of the log, for ${name}`, () =>
      assert.equal(estimateDollarsPerMillionCalls(use, "url").toFixed(4), (dollars + log).toFixed(4)));

  it("a million reviews cost 1.125 dollars more behind the HTTP API; more time or memory costs more", () => {
    const use = fc.record({
      memoryMegabytes: fc.integer({ min: 128, max: 10_240 }),
      milliseconds: fc.integer({ min: 0, max: 30_000 }),
      readsCluster: fc.boolean(),
      phases: fc.constant(1),
      warmEnvironments: fc.constant(0),
      ledgerDollars: fc.constantFrom(0, 0.75),
    });
    const check = (one: RuleCostFactors, increase: number) => {
      const cost = estimateDollarsPerMillionCalls(one, "url");
      assert.ok(Math.abs(estimateDollarsPerMillionCalls(one, "http") - cost - 1.125) < 1e-9);
      const estimate = (change: Partial<RuleCostFactors>) =>
        estimateDollarsPerMillionCalls({ ...one, ...change }, "url");
      assert.ok(estimate({ milliseconds: one.milliseconds + increase }) > cost);
      assert.ok(estimate({ memoryMegabytes: one.memoryMegabytes + increase }) > cost);
      assert.ok(estimate({ readsCluster: true }) >= cost);
    };
    fc.assert(fc.property(use, fc.integer({ min: 1, max: 1000 }), check));
  });
});

describe("the cost of a month", () => {
  const find = (months: MonthlyCost[], writes: number, type: "http" | "url") =>
    months.find((month) => month.writes === writes && month.endpointType === type)?.dollars ?? {};

  it("the cost of a month grows with the number of writes, except for its fixed parts", () => {
    const months = estimateMonths([{ ...smallRule, warmEnvironments: 2 }]);
    const [few, many] = [find(months, 1e6, "url"), find(months, 100e6, "url")];
    const fixed = ["metrics", "alarms", "dashboard", "warm environments"];
    for (const [part, dollars] of Object.entries(few))
      assert.equal(many[part]?.toFixed(6), (fixed.includes(part) ? dollars : 100 * dollars).toFixed(6), part);
  });

  it("the cost of a month counts each phase of a rule as a call", () => {
    const [one, two] = [estimateMonths([smallRule]), estimateMonths([{ ...smallRule, phases: 2 }])];
    assert.equal(find(two, 1e6, "http").requests, 2 * (find(one, 1e6, "http").requests ?? 0));
  });

  // 4 phases and 100 million writes make 400 million calls: 300 at 1 dollar a million, and 100 at 0.9.
  it("the cost of a month has the lower price of the gateway beyond 300 million calls", () =>
    assert.equal(find(estimateMonths([{ ...smallRule, phases: 4 }]), 100e6, "http").gateway, 300 * 1 + 100 * 0.9));

  it("the cost of a month has 2.16 dollars for an environment of 256 MB that is warm for thirty days", () =>
    assert.equal(
      find(estimateMonths([{ ...smallRule, warmEnvironments: 1 }]), 1e6, "url")["warm environments"]?.toFixed(2),
      "2.16",
    ));
});

/** Returns a page of docs/. Tables keep their lines; other text is one line, so that wrapped sentences are found. */
const readPage = async (name: string) =>
  (await readFile(new URL(`../../../docs/${name}.md`, import.meta.url), "utf8")).replaceAll(/(?<!\|)\n(?![|\n])/g, " ");

const toMarkdown = ([header = [], ...rows]: string[][]) =>
  [header, ["---", ...header.slice(1).map(() => "---:")], ...rows].map((row) => `| ${row.join(" | ")} |`).join("\n");

describe("docs/reference/costs.md", async () => {
  const page = await readPage("reference/costs");
  const background = await readPage("background/costs");
  const catalogue = await readCatalogue();
  // The page says for instance "With `a`, `b` and `c`, in dollars:".
  const [, list = ""] = /With ((?:`[\w-]+`[, and]*)+), in dollars:/.exec(page) ?? [];
  const named = [...list.matchAll(/`([\w-]+)`/g)].map(([, name]) => name);
  const estimate = (rules: typeof catalogue) =>
    buildCostTable(
      estimateMonths(
        rules.map(({ name, phases, rule }) => {
          const readsCluster = asksCluster(rule);
          const use = ledgerUses[name]?.[0];
          const ledgerDollars = use ? computeLedgerDollars(use) : 0;
          const milliseconds = readsCluster ? 30 : 5;
          return { ...smallRule, readsCluster, milliseconds, phases: phases.length, ledgerDollars };
        }),
      ),
    );

  it("docs/reference/costs.md states the costs of the rules that it names", () => {
    const namedRules = catalogue.filter(({ name }) => named.includes(name));
    assert.equal(namedRules.length, 7);
    assert.ok(page.includes(toMarkdown(estimate(namedRules))), toMarkdown(estimate(namedRules)));
  });
  it("docs/reference/costs.md links to a page that has the costs of all rules that reimplement a plugin", () => {
    const table = toMarkdown(estimate(catalogue.filter(({ rule }) => rule.upstreamPlugin)));
    assert.ok(background.includes(table), table);
  });
  it("docs/reference/costs.md states the date and the region of the prices", () => {
    for (const text of [page, background]) assert.ok(text.includes(`${prices.region} in ${prices.date}`));
  });
});

describe("the uses of the ledger", async () => {
  const catalogue = await readCatalogue();
  const format = (amount: number) => `$${amount.toFixed(2)}`;

  it("the uses of the ledger are known for each rule that has a ledger", () => {
    const rules = catalogue.filter(({ rule }) => Object.values(rule.needs ?? {}).some(({ verb }) => verb === "ledger"));
    assert.deepEqual(rules.map(({ name }) => name).sort(), Object.keys(ledgerUses));
  });
  it("the uses of the ledger are equal to the table in docs/background/ledger.md", async () => {
    const rows = Object.entries(ledgerUses).flatMap(([rule, uses]) =>
      uses.map((use) => [rule, use.review, `${use.read}`, `${use.write}`, format(computeLedgerDollars(use))]),
    );
    const header = ["rule", "review", "read units", "write units", "a million"];
    // `toMarkdown` aligns all columns but the first to the right. The second one, too, has text: it is aligned left.
    const table = toMarkdown([header, ...rows]).replace("| ---: |", "| --- |");
    assert.ok((await readPage("background/ledger")).includes(table), table);
  });
});

describe("the pages on networks", async () => {
  const [vpc, endpoints] = await Promise.all([readPage("how-to/vpc"), readPage("reference/endpoint-types")]);
  const { natHour, addressHour, natGigabyte, endpointHour, endpointGigabyte } = prices.vpc;

  it("the pages on networks state the prices of a VPC", () => {
    const [gateway, address, endpoint] = [natHour, addressHour, endpointHour].map((hour) => (720 * hour).toFixed(2));
    const nat = `$${natDollars.toFixed(2)} for thirty days: $${gateway} for itself and $${address} for its public address. Each GB through it costs $${natGigabyte}`;
    assert.ok(vpc.includes(nat), nat);
    const interfaces = `$${endpoint} in each zone, and $${endpointGigabyte} for each GB`;
    assert.ok(vpc.includes(interfaces), interfaces);
  });
  it("the pages on networks state the cost of requests without a valid key", () => {
    const gigabytesSaved = 0.75 - 0.25; // the log of a million reviews, minus that of requests without a key
    const [http, url] = (["http", "url"] as const).map((type) =>
      (estimateDollarsPerMillionCalls(smallRule, type) - prices.logs * gigabytesSaved).toFixed(2),
    );
    const row = `| cost of a million requests without a valid key, of up to 512 KB, with their log lines | $${http} | $${url} |`;
    assert.ok(endpoints.includes(row), row);
  });
});
