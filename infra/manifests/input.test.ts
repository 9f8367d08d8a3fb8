import assert from "node:assert/strict";
import { mkdir, open, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import { createTestFolder } from "../../test/folders.ts";
import { readRows } from "../../test/rows.ts";
import { readInput } from "./input.ts";
import { formatManifestFault } from "./manifests.ts";

const fine = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: fine }\n";
const folder = await createTestFolder();

const write = async (name: string, content: string | Buffer): Promise<string> => {
  const file = join(folder, name);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, content);
  return file;
};

/**
 * Returns the names of the manifests, the faults, and the files without a manifest; paths without the test's folder.
 */
const readPaths = async (...paths: string[]) => {
  const { manifests, faults, filesWithoutManifest } = await readInput(paths.map((path) => join(folder, path)));
  const shorten = (text: string) => text.replaceAll(`${folder}/`, "");
  return {
    names: manifests.map(({ object }) => Object(object.metadata).name),
    faults: faults.map((fault) => shorten(formatManifestFault(fault))),
    filesWithoutManifest: filesWithoutManifest.map(shorten),
  };
};

const utf16 = "a.yaml:1 is in UTF-16; it must be saved as UTF-8";

describe("the input of check", () => {
  const binary: [name: string, content: Buffer, faults: string[]][] = [
    ["a byte order mark", Buffer.concat([Buffer.from("efbbbf", "hex"), Buffer.from(fine)]), []],
    ["UTF-16", Buffer.from(`\uFEFF${fine}`, "utf16le"), [utf16]],
    ["big-endian UTF-16", Buffer.from(`\uFEFF${fine}`, "utf16le").swap16(), [utf16]],
    ["Latin-1", Buffer.from(fine.replace("fine", "fähig"), "latin1"), ["a.yaml:1 is no text in UTF-8"]],
    ["zero bytes", Buffer.alloc(100), ["a.yaml:1 has a NUL character, which neither YAML nor JSON allows"]],
  ];
  const read = readRows<{ name: string; text: string; faults: string[] }[]>(import.meta.filename).map(
    ({ name, text, faults }) => [name, text, faults] as const,
  );
  for (const [name, content, faults] of [...binary, ...read])
    it(`${faults.length === 0 ? "is read" : "is refused"} with ${name}`, async () => {
      await write("a.yaml", content);
      assert.deepEqual(await readPaths("a.yaml"), {
        names: faults.length === 0 ? ["fine"] : [],
        faults,
        filesWithoutManifest: [],
      });
    });

  it("the input of check may be a chart; files that are not templates are left out", async () => {
    await write("chart/Chart.yaml", "apiVersion: v2\nname: a\nversion: 1.0.0\n");
    await write("chart/values.yaml", "a: 1\n");
    await write("chart/templates/a.yaml", `{{- if .Values.a }}\n${fine}{{- end }}\n`);
    assert.deepEqual(await readPaths("chart"), {
      names: [],
      faults: ["chart/templates/a.yaml:1 is a Helm template; run helm template CHART | postern check -"],
      filesWithoutManifest: ["chart/Chart.yaml", "chart/values.yaml"],
    });
  });

  it("the input of check may be a folder with the JSON report of an earlier run, which is left out", async () => {
    await write("reported/fine.yaml", fine);
    await write("reported/report.json", '{\n  "objects": [\n    { "file": "a.yaml", "apiVersion": "v1" }\n  ]\n}\n');
    assert.deepEqual(await readPaths("reported"), {
      names: ["fine"],
      faults: [],
      filesWithoutManifest: ["reported/report.json"],
    });
  });

  it("the input of check may be a folder with broken and circular links", async () => {
    await write("links/fine.yaml", fine);
    await symlink(".", join(folder, "links/self"));
    await symlink("b.yaml", join(folder, "links/a.yaml"));
    await symlink("a.yaml", join(folder, "links/b.yaml"));
    const { names, faults } = await readPaths("links");
    assert.deepEqual(
      [names, faults],
      [["fine"], ["a", "b"].map((name) => `links/${name}.yaml:1 is a link that leads to no file`)],
    );
  });

  it("the input of check does not include files that are too large, which is reported", async () => {
    await write("large/fine.yaml", fine);
    const large = await open(await write("large/large.yaml", "a: b\n"), "r+");
    await large.truncate(65 * 1024 * 1024);
    await large.close();
    const sentence = "can't be read: it has more than 67108864 bytes, the most that is read";
    const { names, faults } = await readPaths("large");
    assert.deepEqual([names, faults], [["fine"], [`large/large.yaml:1 ${sentence}`]]);
  });

  it("the input of check is read only up to a limit from a file without an end", async () => {
    const { faults } = await readInput(["/dev/zero"]);
    assert.match(String(faults[0]?.sentence), /^can't be read: it has more than /);
  });

  const nowhere: [path: string, sentence: RegExp][] = [
    ["", /^one of the paths is empty$/],
    [
      "https://example.com/a.yaml",
      /^https:\/\/example.com\/a.yaml is an address; run curl ADDRESS \| postern check -$/,
    ],
    ["*.nothing", /^there is no file, folder or match for \*\.nothing$/],
    ["[z-a", /^there is no file, folder or match for \[z-a$/],
  ];
  for (const [path, sentence] of nowhere)
    it(`can't be the path ${JSON.stringify(path)}`, () => assert.rejects(readInput([path]), { message: sentence }));
});
