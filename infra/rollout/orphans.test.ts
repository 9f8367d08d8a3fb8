import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { DeployedObject } from "../clusters/api.ts";
import { findUnansweredEntries, removeUnansweredEntries, type ServedVersion, type UnansweredEntry } from "./orphans.ts";
import type { ReleasedCluster } from "./releases.ts";

const buildConfiguration = (kind: "Mutating" | "Validating", ...entries: string[]): DeployedObject => ({
  apiVersion: "admissionregistration.k8s.io/v1",
  kind: `${kind}WebhookConfiguration`,
  metadata: { name: "postern" },
  webhooks: entries.map((entry) => ({ name: `${entry}.postern.dev` })),
});
const role: DeployedObject = { apiVersion: "v1", kind: "ClusterRole", metadata: { name: "postern:a" } };
const buildRecord = (manifests: DeployedObject[], keyVersion = 1): ReleasedCluster => ({
  ...{ at: "", keyVersion, hardened: [], since: {}, manifests },
});
const both: DeployedObject[] = [
  role,
  buildConfiguration("Mutating", "a"),
  buildConfiguration("Validating", "a", "x.b", "y.b"),
];

type OwnConfig = Partial<ServedVersion["share"]["clusters"][string]>;
const buildVersion = (
  phases: ServedVersion["phases"],
  own: OwnConfig = {},
  variants?: ServedVersion["share"]["variants"],
): ServedVersion => ({
  phases,
  share: {
    ...{ rule: "a", clusters: { shop: { keyVersions: [1], mode: "enforce", settings: {}, ...own } } },
    ...(variants && { variants }),
  },
});

describe("entries that get no answer", () => {
  const usual = { x: {}, y: {} };
  const table: [
    it: string,
    cluster: ReleasedCluster,
    buildVersion: Record<string, ServedVersion>,
    orphans: string[],
  ][] = [
    ["are none, where none are served yet", buildRecord([]), { a: buildVersion([]) }, []],
    ["are none of rules that nothing is said of", buildRecord(both), {}, []],
    [
      "are none, where all is answered",
      buildRecord(both),
      { a: buildVersion(["mutate", "validate"]), b: buildVersion(["validate"], {}, usual) },
      [],
    ],
    [
      "are those of a half that went",
      buildRecord(both),
      { a: buildVersion(["validate"]) },
      ["a/mutate doesn't mutate"],
    ],
    [
      "are those of both halves, where the rule has none",
      buildRecord(both),
      { a: buildVersion([]) },
      ["a/mutate doesn't mutate", "a/validate doesn't validate"],
    ],
    [
      "are those of a variant that went",
      buildRecord(both),
      { b: buildVersion(["validate"], {}, { x: {} }) },
      ["y.b/validate has no variant y"],
    ],
    [
      "are those of a variant that went in this cluster alone",
      buildRecord(both),
      { b: buildVersion(["validate"], { variants: { y: {} } }, usual) },
      ["x.b/validate has no variant x"],
    ],
    [
      "are none of a variant that only this cluster has",
      buildRecord(both),
      { b: buildVersion(["validate"], { variants: usual }, {}) },
      [],
    ],
    [
      "are those of all variants, where the rule has none any more",
      buildRecord(both),
      { b: buildVersion(["validate"]) },
      ["x.b/validate has no variant x", "y.b/validate has no variant y"],
    ],
    [
      "are none that a variant shares its name with what any object has",
      buildRecord([buildConfiguration("Validating", "constructor.b")]),
      { b: buildVersion(["validate"], {}, {}) },
      ["constructor.b/validate has no variant constructor"],
    ],
    [
      "are none of a rule that is off: it lets them by",
      buildRecord(both),
      { a: buildVersion([], { mode: "off" }) },
      [],
    ],
    [
      "are all of a cluster with another key",
      buildRecord(both, 2),
      { b: buildVersion(["validate"], {}, usual) },
      [
        "x.b/validate doesn't accept its key of version 2 (key)",
        "y.b/validate doesn't accept its key of version 2 (key)",
      ],
    ],
    [
      "are none of a key that is still taken",
      buildRecord(both, 2),
      { a: buildVersion(["mutate", "validate"], { keyVersions: [2, 3] }) },
      [],
    ],
    [
      "are those of a key that isn't, of a rule that is off, too",
      buildRecord([buildConfiguration("Mutating", "a")], 2),
      { a: buildVersion(["mutate"], { mode: "off" }) },
      ["a/mutate doesn't accept its key of version 2 (key)"],
    ],
  ];
  for (const [sentence, cluster, versions, expected] of table)
    it(sentence, () => {
      const found = findUnansweredEntries("shop", cluster, new Map(Object.entries(versions)));
      assert.deepEqual(
        found.map(({ entry, phase, why, isKey }) => `${entry}/${phase} ${why}${isKey ? " (key)" : ""}`),
        expected,
      );
    });

  for (const name of ["other", "constructor"])
    it(`are all of a cluster that isn't known: ${name}`, () => {
      const found = findUnansweredEntries(
        name,
        buildRecord([buildConfiguration("Mutating", "a")]),
        new Map([["a", buildVersion(["mutate"])]]),
      );
      const [entry, phase] = ["a", "mutate"] as const;
      assert.deepEqual(found, [{ entry, phase, why: `doesn't know cluster ${name}`, isKey: true }]);
    });
});

describe("manifests without them", () => {
  const buildOrphan = (entry: string, phase: UnansweredEntry["phase"]): UnansweredEntry => ({
    entry,
    phase,
    why: "",
    isKey: false,
  });
  const table: [it: string, orphans: UnansweredEntry[], left: DeployedObject[]][] = [
    ["are the same, where there are none", [], both],
    ["are the same, where they have none of these", [buildOrphan("c", "validate"), buildOrphan("x.b", "mutate")], both],
    [
      "have the other half, the other variants and the roles",
      [buildOrphan("a", "validate"), buildOrphan("y.b", "validate")],
      [role, buildConfiguration("Mutating", "a"), buildConfiguration("Validating", "x.b")],
    ],
    [
      "have no configuration that would be empty",
      [buildOrphan("a", "mutate")],
      [role, buildConfiguration("Validating", "a", "x.b", "y.b")],
    ],
    [
      "have roles alone, where every entry goes",
      [
        buildOrphan("a", "mutate"),
        buildOrphan("a", "validate"),
        buildOrphan("x.b", "validate"),
        buildOrphan("y.b", "validate"),
      ],
      [role],
    ],
  ];
  for (const [sentence, orphans, expected] of table)
    it(sentence, () => {
      const before = structuredClone(both);
      assert.deepEqual(removeUnansweredEntries(both, orphans), expected);
      assert.deepEqual(both, before);
    });
});
