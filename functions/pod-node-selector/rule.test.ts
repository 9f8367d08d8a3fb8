import assert from "node:assert/strict";
import { describe, it } from "node:test";
import podNodeSelector from "./rule.ts";

describe("settings of pod-node-selector", () => {
  const unfit = (podNodeSelectorPluginConfig: object) =>
    podNodeSelector.checkSettings?.({ podNodeSelectorPluginConfig });
  const wanted = 'must have selectors such as "pool=default,disk=ssd" under podNodeSelectorPluginConfig';

  it("are fit where every text is a selector", () =>
    assert.equal(
      unfit({ clusterDefaultNodeSelector: "pool=default", payments: "", batch: "a.example/b = c,d=" }),
      undefined,
    ));

  it("are unfit where one is none", () => {
    assert.equal(unfit({ batch: "pool" }), `${wanted}; of batch: invalid selector: [pool]`);
    assert.equal(unfit({ batch: "a=b," }), `${wanted}; of batch: invalid selector: []`);
    assert.equal(unfit({ batch: 7 }), `${wanted}; of batch: 7 is no text`);
    assert.match(
      String(unfit({ batch: "a/b/c=d" })),
      /of batch: <nil>: Invalid value: "a\/b\/c": a valid label key must/,
    );
    assert.match(String(unfit({ batch: "A/b=c" })), /prefix part a lowercase RFC 1123 subdomain must/);
    assert.match(String(unfit({ batch: `${"k".repeat(64)}=v` })), /name part must be no more than 63 bytes$/);
    assert.match(String(unfit({ batch: `k=${"v".repeat(64)}` })), /\[k\]: .*: must be no more than 63 bytes$/);
  });
});
