import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { DeployedObject } from "../clusters/api.ts";
import { findUnansweredEntries, removeUnansweredEntries, type ServedVersion, type UnansweredEntry } from "./orphans.ts";
import type { ReleasedCluster } from "./releases.ts";

const configuration = (kind: "Mutating" | "Validating", ...entries: string[]): DeployedObject => ({
  apiVersion: "admissionregistration.k8s.io/v1",
  kind: `${kind}WebhookConfiguration`,
  metadata: { name: "postern" },
  webhooks: entries.map((entry) => ({ name: `${entry}.postern.dev` })),
});
const role: DeployedObject = { apiVersion: "v1", kind: "ClusterRole", metadata: { name: "postern:a" } };
const toldOf = (manifests: DeployedObject[], keyVersion = 1): ReleasedCluster => ({
  ...{ at: "", keyVersion, hardened: [], since: {}, manifests },
});
const both: DeployedObject[] = [role, configuration("Mutating", "a"), configuration("Validating", "a", "x.b", "y.b")];

type Own = Partial<ServedVersion["share"]["clusters"][string]>;
const served = (
  phases: ServedVersion["phases"],
  own: Own = {},
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
  const table: [it: string, cluster: ReleasedCluster, served: Record<string, ServedVersion>, orphans: string[]][] = [
    ["are none, where none are served yet", toldOf([]), { a: served([]) }, []],
    ["are none of rules that nothing is said of", toldOf(both), {}, []],
    [
      "are none, where all is answered",
      toldOf(both),
      { a: served(["mutate", "validate"]), b: served(["validate"], {}, usual) },
      [],
    ],
    ["are those of a half that went", toldOf(both), { a: served(["validate"]) }, ["a/mutate doesn't mutate"]],
    [
      "are those of both halves, where the rule has none",
      toldOf(both),
      { a: served([]) },
      ["a/mutate doesn't mutate", "a/validate doesn't validate"],
    ],
    [
      "are those of a variant that went",
      toldOf(both),
      { b: served(["validate"], {}, { x: {} }) },
      ["y.b/validate has no variant y"],
    ],
    [
      "are those of a variant that went in this cluster alone",
      toldOf(both),
      { b: served(["validate"], { variants: { y: {} } }, usual) },
      ["x.b/validate has no variant x"],
    ],
    [
      "are none of a variant that only this cluster has",
      toldOf(both),
      { b: served(["validate"], { variants: usual }, {}) },
      [],
    ],
    [
      "are those of all variants, where the rule has none any more",
      toldOf(both),
      { b: served(["validate"]) },
      ["x.b/validate has no variant x", "y.b/validate has no variant y"],
    ],
    [
      "are none that a variant shares its name with what any object has",
      toldOf([configuration("Validating", "constructor.b")]),
      { b: served(["validate"], {}, {}) },
      ["constructor.b/validate has no variant constructor"],
    ],
    ["are none of a rule that is off: it lets them by", toldOf(both), { a: served([], { mode: "off" }) }, []],
    [
      "are all of a cluster with another key",
      toldOf(both, 2),
      { b: served(["validate"], {}, usual) },
      [
        "x.b/validate doesn't accept its key of version 2 (key)",
        "y.b/validate doesn't accept its key of version 2 (key)",
      ],
    ],
    [
      "are none of a key that is still taken",
      toldOf(both, 2),
      { a: served(["mutate", "validate"], { keyVersions: [2, 3] }) },
      [],
    ],
    [
      "are those of a key that isn't, of a rule that is off, too",
      toldOf([configuration("Mutating", "a")], 2),
      { a: served(["mutate"], { mode: "off" }) },
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
        toldOf([configuration("Mutating", "a")]),
        new Map([["a", served(["mutate"])]]),
      );
      const [entry, phase] = ["a", "mutate"] as const;
      assert.deepEqual(found, [{ entry, phase, why: `doesn't know cluster ${name}`, isKey: true }]);
    });
});

describe("manifests without them", () => {
  const orphan = (entry: string, phase: UnansweredEntry["phase"]): UnansweredEntry => ({
    entry,
    phase,
    why: "",
    isKey: false,
  });
  const table: [it: string, orphans: UnansweredEntry[], left: DeployedObject[]][] = [
    ["are the same, where there are none", [], both],
    ["are the same, where they have none of these", [orphan("c", "validate"), orphan("x.b", "mutate")], both],
    [
      "have the other half, the other variants and the roles",
      [orphan("a", "validate"), orphan("y.b", "validate")],
      [role, configuration("Mutating", "a"), configuration("Validating", "x.b")],
    ],
    [
      "have no configuration that would be empty",
      [orphan("a", "mutate")],
      [role, configuration("Validating", "a", "x.b", "y.b")],
    ],
    [
      "have roles alone, where every entry goes",
      [orphan("a", "mutate"), orphan("a", "validate"), orphan("x.b", "validate"), orphan("y.b", "validate")],
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
