import assert from "node:assert/strict";
import { cp, mkdir, symlink } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { findBuilders } from "../builders/builders.ts";
import { createTestFolder } from "../folders.ts";
import { findKubectl } from "../kubectl/kubectl.ts";
import { needs } from "../parts.ts";
import { readRows } from "../rows.ts";
import { runVerb } from "../verb.ts";

// Runs `npx postern check --build` with the real kustomize, kubectl and helm.
const folder = await createTestFolder();
const { PATH = "" } = process.env;

/** A run of `postern check --build`, and its expected result. */
interface BuildRow {
  name: string;
  paths: string[];
  options?: string[];
  /** The programs on the PATH. */
  programs?: string[];
  code: number;
  /** For each object: its file and line, its name, and its denials with their lines. */
  objects?: string[];
  faults?: string[];
  notes?: string[];
}

/** Returns a report whose only note is the last line of standard error, for a check that prints no report. */
const reportFailure = (stderr: string) => ({ objects: [], faults: [], notes: [stderr.trim().split("\n").at(-1)] });

describe("check of kustomizations and charts", await needs("helm and kustomize", "kubectl"), () => {
  before(async () => {
    await cp(fileURLToPath(new URL("../fixtures/builds/", import.meta.url)), folder, { recursive: true });
    const [builders, kubectl] = [await findBuilders(), await findKubectl()];
    for (const [name, program] of [
      ["helm", builders?.program],
      ["kustomize", join(builders?.folder ?? "", "kustomize")],
      ["kubectl", kubectl?.program],
    ] as const) {
      await mkdir(join(folder, "programs", name), { recursive: true });
      await symlink(program ?? "", join(folder, "programs", name, name));
    }
  });
  after(() => {
    process.env.PATH = PATH;
  });

  for (const { name, paths, options = [], programs = [], code, ...expected } of readRows<BuildRow[]>(
    import.meta.filename,
  ))
    it(`check of a kustomization or chart ${name}`, async () => {
      process.env.PATH = programs.map((programName) => join(folder, "programs", programName)).join(":");
      const words = ["--rules", "allowed-registries", "--plugins=none", "--kubernetes", "1.36", "-o", "json"];
      const output = await runVerb(folder, ["check", ...paths, ...options, ...words]);
      const report = output.stdout === "" ? reportFailure(output.stderr) : JSON.parse(output.stdout);
      const { objects, faults, notes } = report;
      const listed = (objects as any[]).flatMap(({ file, line, kind, namespace = "-", name, denials }) => [
        `${file}:${line} ${kind} ${namespace}/${name}`,
        ...denials.map((denial: any) => `denied in line ${denial.line}`),
      ]);
      const outcome = {
        objects: listed,
        faults: (faults as any[]).map(({ file, sentence }) => `${file} ${sentence}`.replaceAll(folder, "FOLDER")),
        notes: (notes as string[]).filter((note) => / build|left out/.test(note)),
      };
      assert.deepEqual({ objects: [], faults: [], notes: [], ...expected }, outcome);
      assert.equal(output.code, code);
    });
});
