import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Capabilities } from "../needs.ts";
import { inactiveFieldReadTracker } from "./reads.ts";
import { createAnswerRepeater } from "./repeated-answers.ts";

const namespaces = { group: "", version: "v1", resource: "namespaces" };
const buildNamespace = (name: string) => ({ apiVersion: "v1", kind: "Namespace", metadata: { name } });

describe("the repeated answers of a review", () => {
  it("a second evaluation repeats each answer, also if the rule writes between two changes of a ledger's key", async () => {
    const decide = async ({ get, create, ledger }: Capabilities) => {
      const addOne = () => ledger("rule", "cluster").change(["key"], ([value]) => [Number(value) + 1], 60);
      await addOne();
      await create(namespaces, buildNamespace("new"));
      await addOne();
      return get(namespaces, "known");
    };
    const repeater = createAnswerRepeater({ objects: [buildNamespace("known")], ledger: { key: 1 } });
    // The second evaluation gets the answers of the first, usually redacted, here unchanged: `get` finds "known" again.
    const first = await decide(repeater.openWatched(inactiveFieldReadTracker));
    const redactNothing = Object.assign(<T>(value: T) => value, { body: (body: string) => body });
    assert.deepEqual(await decide(repeater.openRedacted(redactNothing as never).capabilities), first);
  });
});
