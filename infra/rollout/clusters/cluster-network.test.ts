import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../../../test/rows.ts";
import type { EksNetwork } from "../../clusters/access.ts";
import { describeEksNetwork } from "./cluster-network.ts";

interface Row {
  name: string;
  network?: Partial<EksNetwork & { hasRelay: boolean }>;
  isInVpc?: boolean; // whether the functions of `readingRules` are in a VPC
  /** The rules that read the cluster. */
  readingRules?: string[];
  findings: string[];
}

describe("the findings about an EKS cluster's network", () => {
  for (const { name, network, isInVpc = false, readingRules = [], findings } of readRows<Row[]>(import.meta.filename))
    it(`begin with the expected sentences for ${name}`, () => {
      const eksNetwork = { egress: "AWS_MANAGED", hasPublicEndpoint: true, publicRanges: ["0.0.0.0/0"], ...network };
      const found = describeEksNetwork(eksNetwork, readingRules, isInVpc);
      assert.equal(found.length, findings.length, found.join("\n"));
      for (const [index, sentence] of findings.entries())
        assert.equal(found[index]?.slice(0, sentence.length), sentence);
    });
});
