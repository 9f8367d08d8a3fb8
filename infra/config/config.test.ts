import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { rule } from "#lib/rule.ts";
import { toCatalogueRule } from "../../test/catalogue-rules.ts";
import { readRows } from "../../test/rows.ts";
import { Complaint } from "../cli/complaint.ts";
import { parseConfig, readConfig } from "../project/project.ts";
import { buildEndpointConfig, listServedRulesAndGroups, toGroupRule } from "../project/served.ts";
import { type ClusterConfig, chooseCluster } from "./config.ts";
import { listRecordingBucketSettings, listWritableBucketPaths } from "./record-section.ts";

const shape = {
  seconds: 300,
  ratio: 0.5,
  on: true,
  name: "x",
  images: ["a"],
  any: [] as unknown[],
  labels: {},
  deep: { level: "low", wait: 1 },
  optional: null,
};
const catalogue = [
  toCatalogueRule(
    "waits",
    rule({
      summary: "Waits.",
      match: [],
      settings: shape,
      checkSettings: ({ seconds, name }, clusters) => {
        if (seconds < 0) return "seconds must not be negative";
        // A test sets `name` to "missing-cluster", which isn't in `clusters` (undefined if postern.yaml has none).
        return name === "missing-cluster" && clusters?.includes(name) === false ? "name must be a cluster" : undefined;
      },
      mutate() {},
    }),
  ),
  toCatalogueRule("spares", rule({ summary: "Spares.", match: [], exemptionRequired: true, validate() {} })),
  toCatalogueRule("plain", rule({ summary: "Does little.", match: [], validate() {} })),
];

const parse = (text: string) => parseConfig(text, catalogue);
const parseCluster = (text: string, name = "local"): ClusterConfig => {
  const found = parse(text).clusters.get(name);
  assert.ok(found);
  return found;
};
const parseRuleConfig = (text: string, ruleName: string, name?: string) => {
  const found = parseCluster(text, name).rules.get(ruleName);
  assert.ok(found);
  return found;
};

/** Each row has the mistake, the postern.yaml, and the error message. */
const rows = readRows<[string, string, string][]>(import.meta.filename);

describe("an invalid postern.yaml", () => {
  // Each of eight lists has nine aliases of the list before.
  const bomb = ["a: &a [x, x, x, x, x, x, x, x, x]", ..."bcdefgh"]
    .map((key, index) => {
      const before = Array(9)
        .fill(`*${"abcdefgh"[index - 1]}`)
        .join(", ");
      return index === 0 ? key : `${key}: &${key} [${before}]`;
    })
    .join("\n");

  /** How messages show values that they don't show as YAML does. */
  const shown = new Map([
    ["", ", not null"],
    [".nan", ", not NaN"],
    ["[[1]]", ", not [[…]]"],
  ]);
  const table: [name: string, text: string, message: string][] = [
    ...rows,
    ...["0", "31", "1.5", '"3"', "[3]", ".nan"].map((seconds): [string, string, string] => [
      `timeoutSeconds ${seconds}`,
      `rules: { plain: { timeoutSeconds: ${seconds} } }`,
      `postern.yaml:1 rules.plain.timeoutSeconds must be a whole number from 1 to 30${shown.get(seconds) ?? `, not ${seconds}`}`,
    ]),
    ...["reserved", "warm"].flatMap((member) =>
      ["0", "1.5", '"3"', "[3]", ""].map((number): [string, string, string] => [
        `${member} ${number}`,
        `rules: { plain: { ${member}: ${number} } }`,
        `postern.yaml:1 rules.plain.${member} must be a whole number from 1${shown.get(number) ?? `, not ${number}`}`,
      ]),
    ),
    ...["One", "-a", "a_b", "a.b", `a${"b".repeat(63)}`, "__proto__"].map((name): [string, string, string] => [
      `a cluster called ${name}`,
      `clusters: { ${name}: }`,
      `postern.yaml:1 clusters.${name} is no name for a cluster: it must have at most 63 lower-case letters, digits and hyphens, and no hyphen first or last`,
    ]),
    ...[
      "0",
      "-1",
      "1.5",
      '"1"',
      "[]",
      "[2, 1]",
      "[1, 1]",
      "[1, 2, 3]",
      '["1", 2]',
      "[[1]]",
      "{ toString: 1 }",
      "true",
    ].map((version): [string, string, string] => [
      `the keyVersion ${version}`,
      `clusters: { one: { keyVersion: ${version} } }`,
      `postern.yaml:1 clusters.one.keyVersion must be a whole number from 1, or two such numbers while the key changes, the new one last${shown.get(version) ?? `, not ${version}`}`,
    ]),
    [
      "an exception with a long reason",
      `rules: { plain: { exempt: { exceptions: [{ users: [a], until: 2027-01-31, owner: o, reason: ${"r".repeat(301)} }] } } }`,
      `postern.yaml:1 rules.plain.exempt.exceptions.0.reason must be a text of one line, with at most 300 characters, not "${"r".repeat(80)}"…`,
    ],
    [
      "101 exceptions",
      `rules: { plain: { exempt: { exceptions: [${Array(101).fill("{ users: [a], until: 2027-01-31, owner: o, reason: r }").join(", ")}] } } }`,
      "postern.yaml:1 rules.plain.exempt.exceptions must be a list of at most 100 exceptions, not [{…}, {…}, {…}, …]",
    ],
    ["an alias bomb", bomb, "postern.yaml:1 is no YAML: its aliases stand for too many values; write some of them out"],
  ];
  for (const text of ["", "\n", "# rules:\n", "---\n", "null"])
    table.push([
      JSON.stringify(text),
      text,
      'postern.yaml is empty; it must name the rules that are on, or say "rules: {}" if none is',
    ]);
  for (const [name, text, message] of table)
    it(`with ${name} is refused`, () =>
      assert.throws(
        () => parse(text),
        (error) => {
          assert.ok(error instanceof Complaint, String(error));
          assert.equal(error.message, message);
          return true;
        },
      ));

  it("an invalid postern.yaml with duplicate keys is refused", () =>
    assert.throws(
      () => parse("rules:\n  plain:\n  plain:"),
      /^Error: postern\.yaml:3 is no YAML: the key plain is there twice$/,
    ));
  for (const [open, close] of [
    ["[", "]"],
    ["{a: ", "}"],
  ] as const)
    it(`20,000 levels deep is refused, closed by "${close}" or not`, () => {
      assert.throws(() => parse(`rules: ${open.repeat(20_000)}`), Complaint);
      assert.throws(() => parse(`rules: ${open.repeat(20_000)}${close.repeat(20_000)}`), Complaint);
    });
  it("an invalid postern.yaml is refused if it is missing", async () => {
    await assert.rejects(
      readConfig("nowhere/postern.yaml", catalogue),
      (error) => error instanceof Complaint && /^postern\.yaml can't be read: ENOENT/.test(error.message),
    );
  });
});

describe("a postern.yaml", () => {
  for (const text of ["rules:", "{}", "rules: {}", "clusters:"])
    it(`that says ${JSON.stringify(text)} has one cluster, local, and no rules`, () => {
      assert.deepEqual(parse(text).clusters, new Map([["local", { keyVersions: [1], rules: new Map(), groups: [] }]]));
    });

  it("a postern.yaml fills in a rule's defaults", () => {
    assert.deepEqual(parseRuleConfig("rules: { waits: }", "waits"), { mode: "enforce", settings: shape });
  });

  it("a postern.yaml overrides a rule's defaults for all clusters, and the result for one cluster", () => {
    const text = `
rules:
  waits:
    mode: warn
    timeoutSeconds: 5
    exempt: { users: [a], groups: [g] }
    settings: { seconds: 1, images: [b, c], labels: { x: y }, deep: { level: high } }
  plain:
clusters:
  one:
  two:
    rules:
      waits: { mode: enforce, failurePolicy: Fail, exempt: { namespaces: [n] }, settings: { name: z, images: [], deep: { wait: 2 } } }
`;
    const common = { ...shape, seconds: 1, images: ["b", "c"], labels: { x: "y" }, deep: { level: "high", wait: 1 } };
    assert.deepEqual(parseRuleConfig(text, "waits", "one"), {
      mode: "warn",
      timeoutSeconds: 5,
      exempt: { users: ["a"], groups: ["g"] },
      settings: common,
    });
    assert.deepEqual(parseRuleConfig(text, "waits", "two"), {
      mode: "enforce",
      failurePolicy: "Fail",
      timeoutSeconds: 5,
      exempt: { namespaces: ["n"] },
      settings: { ...common, name: "z", images: [], deep: { level: "high", wait: 2 } },
    });
    assert.deepEqual(parseRuleConfig(text, "plain", "two"), { mode: "enforce", settings: {} });
    assert.deepEqual(shape.deep, { level: "low", wait: 1 }, "the defaults stay as they are");
  });

  it("a postern.yaml reserves concurrency and warm environments for a rule, equally in every cluster", () => {
    const text =
      "rules: { plain: { reserved: 5, warm: 2 } }\nclusters: { one: , two: { rules: { plain: { mode: warn } } } }\n";
    assert.deepEqual(
      ["one", "two"].map((name) => parseRuleConfig(text, "plain", name)).map(({ reserved, warm }) => [reserved, warm]),
      [
        [5, 2],
        [5, 2],
      ],
    );
  });

  it("a postern.yaml sets where reviews are recorded, with exceptions for clusters", () => {
    const text = `
rules: { plain: { record: { bucket: reviews } }, spares: { exempt: { users: [] } } }
clusters:
  one:
  two: { rules: { plain: { record: off }, spares: { record: { bucket: own, prefix: a/, share: 1, keep: [spec.containers.args, 'metadata.annotations["a.b/c"]', /data/a~1b] } } } }
`;
    const listRecordSections = (name: string) =>
      ["plain", "spares"].map((rule) => parseRuleConfig(text, rule, name).record);
    assert.deepEqual(listRecordSections("one"), [{ bucket: "reviews", prefix: "", share: 0.01 }, undefined]);
    const keep = [
      ["spec", "containers", "args"],
      ["metadata", "annotations", "a.b/c"],
      ["data", "a/b"],
    ];
    assert.deepEqual(listRecordSections("two"), [undefined, { bucket: "own", prefix: "a/", share: 1, keep }]);
    const [listed] = catalogue.slice(2);
    assert.ok(listed);
    const places = listRecordingBucketSettings(parse(text), listed);
    assert.deepEqual(places, { one: { plain: { bucket: "reviews", prefix: "", share: 0.01 } } });
    assert.deepEqual(listWritableBucketPaths(places), ["reviews/one/plain/"]);
    assert.deepEqual(listRecordingBucketSettings(parse(text.replace("plain: {", "plain: { mode: off,")), listed), {});
  });

  it("a postern.yaml may turn a rule on for one cluster alone", () => {
    const config = parse("clusters: { one: { rules: { plain: } }, two: }");
    assert.deepEqual(
      listServedRulesAndGroups(config, catalogue).map(({ name }) => name),
      ["plain"],
    );
    assert.deepEqual(
      buildEndpointConfig(config, toCatalogueRule("plain", rule({ summary: "Plain.", match: [], settings: { a: 1 } }))),
      {
        rule: "plain",
        clusters: { one: { keyVersions: [1], mode: "enforce", settings: {} } },
        usual: { keyVersions: [1], mode: "off", settings: { a: 1 } },
      },
    );
  });

  describe("has in each rule's bundle", () => {
    const listed = toCatalogueRule("plain", rule({ summary: "Plain.", match: [], settings: { a: 1 } }));
    const build = (clusters: string, rules = "plain: { settings: { a: 2 } }", refused: string[] = []) =>
      buildEndpointConfig(
        { ...parseConfig(`{ rules: { ${rules} }, clusters: { ${clusters} } }`, [listed]), refused },
        listed,
      );
    const usual = { keyVersions: [1], mode: "enforce", settings: { a: 2 } };
    const match = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE" as const] }];

    it("nothing about a cluster with the usual settings, so that adding it changes no function", () => {
      assert.deepEqual(build("one: "), { rule: "plain", usual, clusters: {} });
      assert.deepEqual(build("one: , two: { rules: { plain: { timeoutSeconds: 4 } } }"), build("one: "));
    });
    it("the setting for log lines, if they are to be short", () => {
      const buildWith = (logs: string) =>
        buildEndpointConfig(parseConfig(`{ rules: { plain: { settings: { a: 2 } } }${logs} }`, [listed]), listed);
      assert.deepEqual(buildWith(", logs: minimal"), { rule: "plain", logs: "minimal", usual, clusters: {} });
      assert.deepEqual(buildWith(", logs: full"), buildWith(""));
      const config = parseConfig("{ rules: { plain: }, logs: minimal }", [listed]);
      const group = toGroupRule({ name: "all", members: [toCatalogueRule("plain", rule({ ...listed.rule, match }))] });
      assert.equal(buildEndpointConfig(config, group).logs, "minimal");
    });
    it("equal settings of clusters once, in any order of clusters and keys", () => {
      const three = "three: { rules: { plain: { mode: warn, settings: { a: 3 } } } }";
      const four = "four: { rules: { plain: { settings: { a: 3 }, mode: warn } } }";
      const expected = { four: { ...usual, mode: "warn", settings: { a: 3 } }, three: "four" };
      assert.deepEqual(build(`one: , ${three}, ${four}`).clusters, expected);
      assert.equal(
        JSON.stringify(build(`${four}, one: , ${three}`)),
        JSON.stringify(build(`one: , ${three}, ${four}`)),
      );
    });
    it("the minor version of Kubernetes if the rule behaves differently in the newest one", () => {
      const differing = toCatalogueRule("plain", rule({ ...listed.rule, match, since: { "1.0": {}, "1.36": {} } }));
      const clusters =
        "old: { kubernetes: '1.35' }, new: { kubernetes: '1.36' }, off: { kubernetes: '1.35', rules: { plain: { mode: off } } }";
      const config = parseConfig(`{ rules: { plain: { settings: { a: 2 } } }, clusters: { ${clusters} } }`, [listed]);
      const off = { ...usual, mode: "off" };
      assert.deepEqual(buildEndpointConfig(config, differing).clusters, { off, old: { ...usual, kubernetes: "1.35" } });
      assert.deepEqual(buildEndpointConfig(config, listed).clusters, { off });
      const group = toGroupRule({ name: "all", members: [differing] });
      const { old } = buildEndpointConfig(config, group).clusters;
      assert.equal(Object(old).kubernetes, "1.35");
    });
    it("clusters whose key has another version, and clusters that are refused", () => {
      const { clusters } = build("one: { keyVersion: [1, 2] }, two: { keyVersion: 2 }", undefined, ["gone", "lost"]);
      assert.deepEqual(clusters, {
        gone: { keyVersions: [], mode: "off", settings: { a: 1 } },
        lost: "gone",
        one: { ...usual, keyVersions: [1, 2] },
        two: { ...usual, keyVersions: [2] },
      });
    });
  });

  it("a postern.yaml turns a rule off for clusters without a section that would have to complete its settings", () => {
    const text = "{ rules: { spares: }, clusters: { one: { rules: { spares: { exempt: { users: [u] } } } } } }";
    assert.equal(parse(text).rules.get("spares")?.mode, "off");
    assert.equal(parse("rules: { plain: }").rules.get("plain")?.mode, "enforce");
  });

  it("a postern.yaml may have a rule without its required exemption if the rule is off", () => {
    assert.equal(parseRuleConfig("rules: { spares: { mode: off } }", "spares").mode, "off");
  });
  it("a postern.yaml accepts an exemption that only the cluster sets", () => {
    const clusters = "clusters: { one: { rules: { spares: { exempt: { users: [] } } } } }";
    assert.deepEqual(parseRuleConfig(`rules: { spares: }\n${clusters}`, "spares", "one").exempt, { users: [] });
  });
  for (const exempt of ["users: []", "namespaces: [a]", "namespaceLabels: { a: b }", "users: [a]", "groups: [a]"])
    it(`exempts by ${exempt}`, () =>
      assert.ok(parseRuleConfig(`rules: { spares: { exempt: { ${exempt} } } }`, "spares").exempt));

  const versions: [text: string, keyVersions: number[]][] = [
    ["", [1]],
    ["keyVersion: 7", [7]],
    ["keyVersion: [7]", [7]],
    ["keyVersion: [1, 3]", [1, 3]],
    ["keyVersion:", [1]],
  ];
  for (const [text, keyVersions] of versions)
    it(`with ${JSON.stringify(text)} accepts the key versions ${keyVersions}`, () =>
      assert.deepEqual(parseCluster(`clusters: { local: { ${text} } }`).keyVersions, keyVersions));

  it("a postern.yaml accepts upstream's configuration object as settings", () => {
    assert.equal(
      Reflect.get(
        parseRuleConfig("rules: { waits: { settings: { apiVersion: a/v1, kind: Waiting, seconds: 2 } } }", "waits")
          .settings,
        "seconds",
      ),
      2,
    );
  });

  it("a postern.yaml keeps a key named __proto__ in an open map", () => {
    const text =
      "rules: { waits: { settings: { labels: { __proto__: { polluted: yes }, a: b } } } }\nclusters: { one: { rules: { waits: { settings: { labels: { c: d } } } } } }";
    const { labels } = parseRuleConfig(text, "waits", "one").settings as typeof shape;
    assert.equal(JSON.stringify(labels), '{"__proto__":{"polluted":"yes"},"a":"b","c":"d"}');
    assert.equal(Reflect.get(labels, "polluted"), undefined);
    assert.equal(Reflect.get({}, "polluted"), undefined);
  });
});

describe("a rule of postern.yaml", () => {
  const match = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE" as const] }];
  const mutators = [
    toCatalogueRule("waits-long", rule({ summary: "Waits.", match, settings: { seconds: 1, ratio: 1 }, mutate() {} })),
  ];

  it("a rule of postern.yaml may be named like a plugin, such as WaitsLong, also in groups and clusters", () => {
    const text = `rules: { WaitsLong: { settings: { seconds: 2 } } }
groups: { all: [WaitsLong] }
clusters: { one: { rules: { WaitsLong: { settings: { ratio: 3 } } } } }`;
    const { clusters, groups } = parseConfig(text, mutators);
    assert.deepEqual(clusters.get("one")?.rules.get("waits-long")?.settings, { seconds: 2, ratio: 3 });
    assert.deepEqual(groups, [{ name: "all", members: mutators }]);
  });

  it("a rule of postern.yaml keeps its mode if it can't be loaded, and its group is left out", () => {
    const text = `rules: { waits-long: , lost: { mode: warn, settings: { unknown: 1 } } }
groups: { some: [lost], whole: [waits-long] }`;
    const { clusters, groups } = parseConfig(text, mutators, ["waits-long", "lost"]);
    assert.deepEqual(groups, [{ name: "whole", members: mutators }]);
    assert.equal(clusters.get("local")?.rules.get("lost")?.mode, "warn");
  });
});

describe("the chosen cluster", () => {
  const [one, two] = [parse("clusters: { one: }"), parse("clusters: { one: , two: }")];
  it("the chosen cluster is the cluster with this name", () => assert.equal(chooseCluster(two, "two")[0], "two"));
  it("one cluster needs no name", () => assert.equal(chooseCluster(one, undefined)[0], "one"));
  it("the chosen cluster must be named if there are several", () =>
    assert.throws(() => chooseCluster(two, undefined), {
      message: "--cluster is missing; it must name one of one, two",
    }));
  it("the chosen cluster must exist", () =>
    assert.throws(() => chooseCluster(two, "three"), {
      message: 'postern.yaml has no cluster "three"; it has one, two',
    }));
});
