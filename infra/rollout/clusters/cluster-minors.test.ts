import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { rule } from "#lib/rule.ts";
import { toCatalogueRule } from "../../../test/catalogue-rules.ts";
import { readRows } from "../../../test/rows.ts";
import { Complaint } from "../../cli/complaint.ts";
import { parseMinor } from "../../clusters/version.ts";
import { parseConfig } from "../../project/project.ts";
import { chooseClusterMinors, describeMinorDrift } from "./cluster-minors.ts";

interface Row {
  name: string;
  mode?: string;
  /** The minors that postern.yaml states, the cluster runs ("?": unreachable), and the last deployment recorded. */
  stated?: string;
  found?: string;
  last?: string;
  expected?: string;
  note?: string;
}

// The rule behaves differently from 1.34 on, and again from 1.37 on (1.0: all older minors). Only the keys matter here.
const since = { "1.0": {}, "1.34": {}, "1.37": {} };
const catalogue = [toCatalogueRule("differs", rule({ summary: "Differs.", match: [], since, validate() {} }))];
const readConfig = (stated?: string, mode = "enforce") =>
  parseConfig(JSON.stringify({ rules: { differs: { mode } }, clusters: { one: { kubernetes: stated } } }), catalogue);

describe("the minor version for which a cluster's functions are built", () => {
  for (const { name, mode, stated, found, last, expected, note } of readRows<Row[]>(import.meta.filename))
    it(`is ${name}`, () => {
      const live = found === "?" ? new Complaint("cluster one can't be reached", 3) : found && { minor: found };
      const recorded: Record<string, string> = last === undefined ? {} : { one: last };
      const versions = new Map(live ? [["one", live]] : []);
      const chosen = chooseClusterMinors(readConfig(stated, mode), catalogue, versions, recorded);
      assert.deepEqual(chosen.kubernetes, expected === undefined ? {} : { one: expected });
      assert.equal(chosen.clusters.get("one")?.kubernetes, expected);
      assert.deepEqual([...chosen.notes], note === undefined ? [] : [["one", note]]);
    });

  /**
   * `built` is the minor that the release records: by default 1.35. If it is null, the release records none, and the
   * functions were built for the newest, 1.37.
   */
  type Drift = [name: string, stated: string | undefined, live: string, sentence?: string | undefined, built?: null];
  const drifts: Drift[] = [
    ["the same minor", undefined, "1.35"],
    ["another minor in which rules behave alike", undefined, "1.36"],
    [
      "the newest minor, and the release doesn't record for which one functions were built",
      undefined,
      "1.37",
      undefined,
      null,
    ],
    [
      "an older minor, and the release doesn't record for which one functions were built",
      undefined,
      "1.35",
      "it runs Kubernetes 1.35, but its functions were built for the newest; postern deploy builds them again",
      null,
    ],
    [
      "a minor in which rules behave otherwise",
      undefined,
      "1.37",
      "it runs Kubernetes 1.37, but its functions were built for 1.35; postern deploy builds them again",
    ],
    [
      "a later minor than stated",
      "1.35",
      "1.37",
      'it runs Kubernetes 1.37, but its kubernetes in postern.yaml is "1.35"',
    ],
  ];
  for (const [name, stated, live, sentence, built = "1.35"] of drifts)
    it(`${sentence === undefined ? "is right" : "is reported as wrong"} if the cluster runs ${name}`, () => {
      const one = readConfig(stated).clusters.get("one") ?? assert.fail();
      assert.equal(describeMinorDrift(catalogue, one, built ?? undefined, live), sentence);
    });

  const answers: [answer: unknown, minor: string | undefined][] = [
    [{ major: "1", minor: "35", gitVersion: "v1.35.4" }, "1.35"],
    [{ major: "1", minor: "35+", gitVersion: "v1.35.4-eks-3025e55" }, "1.35"],
    [{ major: "1", minor: "35", gitVersion: "v1.35.3-gke.1389000" }, "1.35"],
    [{ major: "", minor: "" }, undefined],
    [{ major: "2", minor: "1" }, undefined],
    ["ok", undefined],
    [undefined, undefined],
  ];
  for (const [answer, minor] of answers)
    it(`is read as ${minor} from the API server's answer ${JSON.stringify(answer)}`, () =>
      assert.equal(parseMinor(answer), minor));
});
