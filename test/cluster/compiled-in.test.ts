import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { describe, it } from "node:test";
import { promisify } from "node:util";
import { compiledInPluginHeading, compiledInPlugins } from "../../infra/catalogue/upstream-plugins.ts";
import { chooseMinors } from "../choices.ts";
import { listPlugins, minors, requireBinaries } from "../control-plane/binaries.ts";
import { needsApiServer } from "../parts.ts";

const toNumber = (minor: string) => Number(minor.split(".")[1]);

describe("the table of compiled-in plugins", async () => {
  it("the table of compiled-in plugins has in its heading the oldest and the newest minor that can be built", () =>
    assert.equal(compiledInPluginHeading, `plugin in Kubernetes ${minors[0]} to ${minors.at(-1)}`));

  for (const minor of chooseMinors())
    it(
      `has the plugins of kube-apiserver ${minor}, and states which are on by default and which need a feature gate`,
      await needsApiServer(minor),
      async () => {
        const binaries = await requireBinaries(minor);
        const { all, defaultOn } = await listPlugins(binaries);
        const pluginsOfMinor = Object.entries(compiledInPlugins).filter(
          ([, { first = minor, last = minor }]) =>
            toNumber(first) <= toNumber(minor) && toNumber(minor) <= toNumber(last),
        );
        assert.deepEqual(pluginsOfMinor.map(([name]) => name).sort(), all.toSorted());
        assert.deepEqual(
          pluginsOfMinor.flatMap(([name, { isOn }]) => (isOn ? [name] : [])).sort(),
          defaultOn.toSorted(),
        );

        const { stdout: help } = await promisify(execFile)(binaries.apiserver, ["--help"], { maxBuffer: 2 ** 24 });
        for (const [plugin, { gate }] of pluginsOfMinor) {
          if (!gate) continue;
          // A gate is on by default from the minor `onSince` on. Without `onSince`, it is off in all minors.
          const isOff = gate.onSince === undefined || toNumber(minor) < toNumber(gate.onSince);
          // A gate that the help doesn't list is on: it is the gate of a generally available feature.
          const isListedAsOff = new RegExp(`:${gate.name}=.*default=false`).test(help);
          assert.equal(isListedAsOff, isOff, `${gate.name} of ${plugin}`);
        }
      },
    );
});
