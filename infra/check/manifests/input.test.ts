import assert from "node:assert/strict";
import { mkdir, open, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import { createTestFolder } from "../../../test/folders.ts";
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

/** Returns the names of the manifests, the faults and the notes, without the folder. */
const readPaths = async (...paths: string[]) => {
  const { manifests, faults, notes } = await readInput(paths.map((path) => join(folder, path)));
  const shorten = (text: string) => text.replaceAll(`${folder}/`, "");
  return {
    names: manifests.map(({ object }) => Object(object.metadata).name),
    faults: faults.map((fault) => shorten(formatManifestFault(fault))),
    notes: notes.map(shorten),
  };
};

describe("readInput", () => {
  const read: [name: string, content: string | Buffer, faults: string[]][] = [
    ["a byte order mark", Buffer.concat([Buffer.from("efbbbf", "hex"), Buffer.from(fine)]), []],
    ["line ends of Windows", fine.replaceAll("\n", "\r\n"), []],
    ["UTF-16", Buffer.from(`\uFEFF${fine}`, "utf16le"), ["a.yaml:1 is in UTF-16; it must be saved as UTF-8"]],
    [
      "UTF-16 of the other kind",
      Buffer.from(`\uFEFF${fine}`, "utf16le").swap16(),
      ["a.yaml:1 is in UTF-16; it must be saved as UTF-8"],
    ],
    ["an older encoding", Buffer.from(fine.replace("fine", "fähig"), "latin1"), ["a.yaml:1 is no text in UTF-8"]],
    ["zeros", Buffer.alloc(100), ["a.yaml:1 is no text in UTF-8"]],
    ["nothing", "", ["a.yaml:1 holds nothing"]],
    ["nothing but separators", "---\n---\n", ["a.yaml:1 holds nothing"]],
    [
      "a tab",
      "apiVersion: v1\nkind: Pod\nmetadata:\n\tname: a\n",
      ["a.yaml:4 is no YAML: Tabs are not allowed as indentation"],
    ],
    [
      "an alias within itself",
      `${fine}data: &a { b: *a }\n`,
      ["a.yaml:1 can't be read: an alias stands within what it leads to"],
    ],
    [
      "a map as a key",
      `${fine}data: { ? [a] : b }\n`,
      ["a.yaml:4 is no YAML: a key must be a text, neither a map nor a list"],
    ],
    [
      "a name that is a word of YAML",
      fine.replace("fine", "yes"),
      ["a.yaml:1 metadata.name must be a text, not true; in quotes it would be one"],
    ],
    ["a List without items", "apiVersion: v1\nkind: List\nitems:\n", ["a.yaml:1 items must be a list"]],
    ["values of another program", "replicas: 3\n", ["a.yaml:1 is no manifest: it must have an apiVersion and a kind"]],
    [
      "a template",
      `${fine.replace("fine", "fine\n  labels:\n    {{- include . }}").replace("{ name", "\n  name").replace(" }", "")}`,
      ["a.yaml:6 is a template; helm template prints the manifests that it makes, which - reads"],
    ],
  ];
  for (const [name, content, faults] of read)
    it(`may have ${name}`, async () => {
      await write("a.yaml", content);
      assert.deepEqual(await readPaths("a.yaml"), { names: faults.length === 0 ? ["fine"] : [], faults, notes: [] });
    });

  it("may be a chart, of which only the templates are meant", async () => {
    await write("chart/Chart.yaml", "apiVersion: v2\nname: a\nversion: 1.0.0\n");
    await write("chart/values.yaml", "a: 1\n");
    await write("chart/templates/a.yaml", `{{- if .Values.a }}\n${fine}{{- end }}\n`);
    assert.deepEqual(await readPaths("chart"), {
      names: [],
      faults: [
        "chart/templates/a.yaml:1 is a template; helm template prints the manifests that it makes, which - reads",
      ],
      notes: [
        "chart/Chart.yaml holds no manifest, and is left out",
        "chart/values.yaml holds no manifest, and is left out",
      ],
    });
  });

  it("may be a folder in which something leads nowhere or in circles", async () => {
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

  it("may be larger than anything that is meant, which is not read", async () => {
    await write("large/fine.yaml", fine);
    const large = await open(await write("large/large.yaml", "a: b\n"), "r+");
    await large.truncate(65 * 1024 * 1024);
    await large.close();
    const sentence = "can't be read: it has more than 67108864 bytes, the most that is read";
    const { names, faults } = await readPaths("large");
    assert.deepEqual([names, faults], [["fine"], [`large/large.yaml:1 ${sentence}`]]);
  });

  it("may have no end", async () => {
    const { faults } = await readInput(["/dev/zero"]);
    assert.match(String(faults[0]?.sentence), /^can't be read: it has more than /);
  });

  const nowhere: [path: string, sentence: RegExp][] = [
    ["", /^one of the paths is empty$/],
    [
      "https://example.com/a.yaml",
      /^https:\/\/example.com\/a.yaml is an address, and none is read; pipe what is there/,
    ],
    ["*.nothing", /^\*\.nothing is no file or folder, and matches none$/],
    ["[z-a", /^\[z-a is no file or folder, and matches none$/],
  ];
  for (const [path, sentence] of nowhere)
    it(`can't be ${JSON.stringify(path)}`, () => assert.rejects(readInput([path]), { message: sentence }));
});
