import assert from "node:assert/strict";
import { mkdir, mkdtempDisposable, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import fc from "fast-check";
import { parse, parseAllDocuments } from "yaml";
import { readRows } from "../../test/rows.ts";
import { runVerb } from "../../test/verb.ts";

interface Row {
  name: string;
  /** The value of --flags. */
  flags?: string;
  /** The name of the file for --config, and the content of files by their names. */
  config?: string;
  files?: Record<string, string>;
  target?: string;
  /** The rules of the postern.yaml that is printed, with their settings. */
  rules?: Record<string, object | null>;
  /** The plugins that were on and are on in the target, too. */
  present?: string[];
  /** The plugins about which the user has nothing to do. */
  nothing?: string[];
  /**
   * The plugins that were off, but can't be turned off in the target. The flag --admission-control turns most plugins
   * off: a row with this flag may leave out `alwaysOn`, and these plugins are then not compared.
   */
  alwaysOn?: string[];
  /** The reasons of plugins whose work is left to the user. */
  open?: Record<string, string>;
  /** The error message instead. */
  refused?: string;
}

/** An object in the report of `postern check -o json`. */
interface CheckedObject {
  name: string;
  verdict: string;
  denials?: { message: string }[];
}

const runImport = async ({ flags, config, files = {}, target }: Row, ...extraOptions: string[]) => {
  await using folder = await mkdtempDisposable(join(tmpdir(), "postern-import-"));
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder.path, name)), { recursive: true });
    await writeFile(join(folder.path, name), text);
  }
  const options = Object.entries({ flags, config, target }).flatMap(([name, value]) =>
    value === undefined ? [] : [`--${name}`, value],
  );
  const { stderr, ...printed } = await runVerb(folder.path, ["import", "apiserver", ...options, ...extraOptions]);
  return { ...printed, stderr: stderr.replaceAll(`${folder.path}/`, "") };
};

describe("postern import apiserver", () => {
  for (const row of readRows<Row[]>(import.meta.filename))
    it(row.name, async () => {
      const { rules = {}, open = {}, refused } = row;
      const { code, stdout, stderr } = await runImport(row);
      if (refused !== undefined)
        return assert.deepEqual({ code, stdout, stderr }, { code: 2, stdout: "", stderr: `${refused}\n` });
      const written = Object.entries(parse(stdout).rules as Record<string, { settings?: object } | null>);
      assert.deepEqual(Object.fromEntries(written.map(([rule, section]) => [rule, section?.settings ?? null])), rules);
      const { plugins } = JSON.parse((await runImport(row, "-o", "json")).stdout);
      const list = (wanted: string) =>
        plugins.flatMap(({ plugin, outcome }: Record<string, string>) => (outcome === wanted ? [plugin] : []));
      const isPartial = row.alwaysOn === undefined && /admission[-_]control=/.test(row.flags ?? "");
      const expected = { present: row.present ?? [], nothing: row.nothing ?? [] };
      assert.deepEqual({ present: list("target"), nothing: list("nothing") }, expected);
      if (!isPartial) assert.deepEqual(list("stays-on"), row.alwaysOn ?? []);
      const left = Object.entries(open).map(([plugin, reason]) => `${plugin}: ${reason}\n`);
      assert.deepEqual({ code, stderr }, { code: left.length > 0 ? 3 : 0, stderr: left.join("") });
    });

  it("postern import apiserver refuses YAML that is nested too deeply", async () => {
    const files = { "deep.yaml": `kind: Pod\na: ${"[".repeat(5_000)}` };
    for (const source of [{ flags: "deep.yaml" }, { config: "deep.yaml" }]) {
      const { stderr } = await runImport({ name: "", ...source, files });
      assert.equal(stderr, "deep.yaml:2 is no YAML: it is nested too deeply\n");
    }
  });

  it("postern import takes one word, and the word is apiserver", async () => {
    for (const [words, sentence] of [
      [[], "name what to import: postern import apiserver"],
      [["kubelet"], "name what to import: postern import apiserver, not postern import kubelet"],
      [["apiserver", "kubelet"], "name what to import: postern import apiserver, not postern import apiserver kubelet"],
    ] as const)
      assert.deepEqual(await runVerb(tmpdir(), ["import", ...words]), { code: 2, stdout: "", stderr: `${sentence}\n` });
  });

  it("postern import apiserver takes a target or reads a cluster, but not both", async () => {
    for (const [options, sentence] of [
      [["--target", "1.35", "--live"], "--target and --live can't be combined"],
      [["--kubeconfig", "a"], "--cluster, --kubeconfig and --context need --live"],
      [
        ["--live", "--kubeconfig", "nowhere"],
        "--kubeconfig nowhere can't be read: ENOENT: no such file or directory, open 'nowhere'",
      ],
    ] as const)
      assert.deepEqual(await runImport({ name: "", flags: "--v=2" }, ...options), {
        code: 2,
        stdout: "",
        stderr: `${sentence}\n`,
      });
  });

  it("postern import apiserver prints a postern.yaml whose rules do in check what the plugins did", async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), "postern-import-"));
    const run = (...words: string[]) => runVerb(folder.path, words);
    const plugins = "AlwaysPullImages,SecurityContextDeny,DenyServiceExternalIPs";
    const { stdout } = await run("import", "apiserver", "--flags", `--enable-admission-plugins=${plugins}`);
    await writeFile(join(folder.path, "postern.yaml"), stdout);
    const spec = 'containers: [{ name: c, image: "nginx:1" }]';
    const manifests = [
      `{ apiVersion: v1, kind: Pod, metadata: { name: root }, spec: { ${spec}, securityContext: { runAsUser: 0 } } }`,
      "{ apiVersion: v1, kind: Service, metadata: { name: taken }, spec: { externalIPs: [10.9.8.7], ports: [{ port: 80 }] } }",
      `{ apiVersion: v1, kind: Pod, metadata: { name: plain }, spec: { ${spec} } }`,
    ];
    await writeFile(join(folder.path, "all.yaml"), manifests.join("\n---\n"));
    const checked = await run("check", "all.yaml", "--config", "postern.yaml", "--plugins=none", "-o", "json");
    assert.equal(checked.code, 1, checked.stderr);
    const { objects } = JSON.parse(checked.stdout);
    assert.deepEqual(
      objects.map(({ name, verdict, denials = [] }: CheckedObject) => [
        name,
        verdict,
        denials.map(({ message }) => message),
      ]),
      [
        ["taken", "denied", ['services "taken" is forbidden: Use of external IPs is denied by admission control']],
        ["root", "denied", ['pods "root" is forbidden: pod.Spec.SecurityContext.RunAsUser is forbidden']],
        ["plain", "changed", []],
      ],
    );
    const printed = await run("manifests", "--url", "https://rules.example.com", "--config", "postern.yaml");
    const names = parseAllDocuments(printed.stdout).flatMap((document) =>
      document.toJS().webhooks.map(({ name }: { name: string }) => name),
    );
    assert.deepEqual(names, [
      "always-pull-images.postern.dev",
      "always-pull-images.postern.dev",
      "deny-service-external-ips.postern.dev",
      "security-context-deny.postern.dev",
    ]);
  });

  it("postern import apiserver reads flags from standard input", async () => {
    const { stdout } = await runVerb(
      tmpdir(),
      ["import", "apiserver", "--flags", "-"],
      "--enable-admission-plugins=AlwaysPullImages",
    );
    assert.deepEqual(parse(stdout).rules, { "always-pull-images": null });
  });

  it("postern import apiserver prints the outcome of each plugin as JSON", async () => {
    const flags =
      "--enable-admission-plugins=AlwaysPullImages,ExtendedResourceToleration --default-not-ready-toleration-seconds=30";
    const { stdout } = await runImport({ name: "", flags, target: "eks-1.35" }, "-o", "json");
    const settings = { notReadySeconds: 30, replaceDefaults: true };
    const reason = "on in eks-1.35, but not with these settings";
    const page = "https://docs.aws.amazon.com/eks/latest/userguide/platform-versions.html";
    assert.deepEqual(JSON.parse(stdout), {
      target: "eks-1.35",
      kubernetes: "1.35",
      source: `the plugins that Kubernetes 1.35 has on by default, and NodeRestriction, ExtendedResourceToleration (${page})`,
      plugins: [
        {
          plugin: "NodeRestriction",
          outcome: "stays-on",
          reason:
            "no flag turned it on, but it is on in eks-1.35 and can't be turned off there. Lets a kubelet write only objects that belong to its own node",
        },
        {
          plugin: "AlwaysPullImages",
          outcome: "rule",
          reason: "not on in eks-1.35",
          rule: "always-pull-images",
          settings: {},
        },
        { plugin: "DefaultTolerationSeconds", outcome: "rule", reason, rule: "default-toleration-seconds", settings },
        { plugin: "ExtendedResourceToleration", outcome: "target", reason: "on in eks-1.35" },
      ],
    });
  });

  it("postern import apiserver keeps any text of a configuration", async () => {
    const text = fc.string({ unit: "binary", maxLength: 20 }).filter((value) => value.isWellFormed());
    await fc.assert(
      fc.asyncProperty(fc.dictionary(text, text, { minKeys: 1 }), async (entries) => {
        const files = { "a.json": JSON.stringify({ podNodeSelectorPluginConfig: entries }) };
        const flags = "--enable-admission-plugins=PodNodeSelector";
        const { code, stdout } = await runImport({ name: "", flags, config: "a.json", files });
        if (code !== 0) return;
        const { settings } = parse(stdout).rules["pod-node-selector"];
        assert.equal(
          JSON.stringify(settings.podNodeSelectorPluginConfig),
          JSON.stringify(JSON.parse(JSON.stringify(entries))),
        );
      }),
      { numRuns: 25 },
    );
  });

  it("postern import apiserver imports a megabyte of any text, or refuses it with a short message", async () => {
    const times = (text: string) => text.repeat(1_000_000 / text.length);
    const texts = [
      "--feature-gates=",
      "--admission-control ",
      "'--admission-control=",
      "kind: ",
      '"',
      "--v=2 \\\n",
      "# a\n",
    ];
    const starts = ["", '--enable-admission-plugins="'];
    const all = [...texts.map(times), ...starts.map((start) => start + times("A,")), starts[1] + times("'--v=2")];
    for (const flags of all) {
      const { code, stderr } = await runImport({ name: "", flags });
      assert.ok(
        code === 0 || (code === 2 && stderr.length < 1000),
        JSON.stringify([flags.slice(0, 60), stderr.slice(0, 60)]),
      );
    }
    const plugins = times("{ name: AlwaysPullImag },");
    const { stderr } = await runImport({
      name: "",
      config: "a.yaml",
      files: { "a.yaml": `kind: AdmissionConfiguration\nplugins: [${plugins}]` },
    });
    assert.equal(stderr.trim().split("\n").length, 10);
  });
});
