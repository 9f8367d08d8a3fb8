import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { request } from "node:https";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { openCheckout } from "../checkout.ts";
import { buildPodRequest } from "../requests.ts";
import { readRows } from "../rows.ts";

// Runs commands with rules whose code doesn't end, ends the process or has another fault that concerns the whole process.
const { rules, commands } = readRows<{
  rules: { name: string; body?: string; top?: string }[];
  commands: { words: string[]; code: number; prints?: string; complains?: string }[];
}>(import.meta.filename);
const checkout = await openCheckout();
// All checkouts share a compile cache, and an error in cached code may name the file in the checkout that compiled it.
const withoutCache = { NODE_DISABLE_COMPILE_CACHE: "1" };
after(() => checkout.remove());

before(async () => {
  for (const { name, top = "", body = "" } of rules) {
    const rule = `import { rule } from "postern/rule"; ${top}
export default rule({ summary: "Admits.", match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
  validate() {
    ${body}
  } });
`;
    const readme = `# forbid-${name}\n\nAdmits.\n\n## Why\n\n## Settings\n\n## Needs\n`;
    await checkout.rule(`forbid-${name}`, rule, "- { name: admits a pod, validate: {}, admitted: true }\n");
    await checkout.write(`functions/forbid-${name}/README.md`, readme);
  }
  await checkout.write("postern.yaml", "rules: { forbid-loop: , forbid-nothing: , forbid-rejection: }\n");
  const buildPod = (name: string) =>
    `apiVersion: v1\nkind: Pod\nmetadata: { name: ${name} }\nspec: { containers: [{ name: a, image: a }] }\n`;
  await checkout.write("pod.yaml", buildPod("a"));
  await checkout.write("pods.yaml", [..."abcdefghi"].map(buildPod).join("---\n"));
});

describe("a rule with a fault that concerns the whole process", { concurrency: 4 }, () => {
  for (const { words, code, prints = "", complains = "" } of commands)
    it(`gives ${words.join(" ")} the exit code ${code}`, async () => {
      const output = await checkout.postern(withoutCache, ...words);
      assert.equal(output.code, code, `${output.stdout}${output.stderr}`);
      assert.match(output.stdout, new RegExp(prints));
      assert.match(output.stderr, new RegExp(complains));
    });

  it("doesn't stop serve", async (t) => {
    const words = ["infra/main.ts", "serve", "--port", "0", "--no-console"];
    const child = spawn(process.execPath, words, { cwd: checkout.folder, env: { ...process.env, ...withoutCache } });
    const ended = once(child, "exit");
    t.after(() => child.kill("SIGKILL"));
    let printed = "";
    const started = Promise.withResolvers<void>();
    child.stdout.on("data", (chunk) => {
      printed += chunk;
      if (printed.includes("Ctrl-C")) started.resolve();
    });
    await started.promise;
    const url = /https:\S+forbid-nothing\/validate/.exec(printed)?.[0] ?? "";
    const ca = await readFile(join(checkout.folder, ".postern/ca.crt"));
    const review = { kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", request: buildPodRequest() };
    const send = async (name: string): Promise<string> => {
      const address = url.replace("forbid-nothing", name);
      // The server may close a connection that was idle during the loop.
      const options = { ca, method: "POST", headers: { "content-type": "application/json" }, agent: false };
      const sent = request(address, options);
      const [response] = await once(sent.end(JSON.stringify(review)), "response");
      return `${response.statusCode} ${(await response.toArray()).join("")}`;
    };
    const sentence = "functions/forbid-loop/rule.ts:4 ran for 10 seconds without a pause, and was ended";
    assert.match(await send("forbid-loop"), new RegExp(`^504 .*${RegExp.escape(sentence)}`));
    assert.match(await send("forbid-rejection"), /^200 /);
    assert.match(await send("forbid-nothing"), /^200 /);
    void send("forbid-loop").catch(() => {});
    child.kill("SIGINT");
    assert.deepEqual(await ended, [0, null], printed);
    assert.ok(printed.includes(`${sentence}; open requests get the code 504\n`), printed);
    assert.ok(
      printed.includes("functions/forbid-rejection/rule.ts:4: a promise that is not awaited was rejected: lost\n"),
    );
  });
});
