import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { crc32, deflateRawSync } from "node:zlib";
import fc from "fast-check";
import { getInflatedContents, readOwnZip, zip } from "./zip.ts";

describe("a zip archive", () => {
  const contents = Buffer.from("module.exports = 1;\n");
  const bytes = zip({ "index.cjs": contents });
  // To `end` and `directory`, the tests add the offsets of fields in the zip format.
  const end = bytes.length - 22;
  const directory = bytes.readUInt32LE(end + 16);

  it("a zip archive ends with a directory that has the position of its file", () => {
    assert.equal(bytes.readUInt32LE(end), 0x06054b50); // the mark of the end
    assert.equal(bytes.readUInt16LE(end + 10), 1); // number of files
    assert.equal(bytes.readUInt32LE(end + 12), end - directory); // size of the directory
    assert.equal(bytes.readUInt32LE(directory), 0x02014b50); // the mark of an entry
    assert.equal(bytes.readUInt32LE(directory + 42), 0); // position of the file
    assert.equal(bytes.toString("utf8", directory + 46, end), "index.cjs");
  });

  it("a zip archive stores the file unchanged, with its checksum and readable for all users", () => {
    for (const checksumAt of [14, directory + 16]) assert.equal(bytes.readUInt32LE(checksumAt), crc32(contents));
    assert.equal(bytes.readUInt32LE(directory + 38) >>> 16, 0o100644);
    assert.equal(bytes.subarray(30 + "index.cjs".length, directory).toString(), String(contents));
  });

  it("a zip archive has the same bytes every time", () => assert.deepEqual(zip({ "index.cjs": contents }), bytes));

  it("a zip archive contains the files that were put into it", () =>
    fc.assert(
      fc.property(
        fc.dictionary(fc.string({ minLength: 1 }), fc.uint8Array({ maxLength: 50 }), { minKeys: 1 }),
        (files) => {
          const found = Object.entries(readOwnZip(zip(files)) ?? {}).map(([name, file]) => [
            name,
            [...getInflatedContents(file)],
          ]);
          const wanted = Object.entries(files).map(([name, file]) => [name, [...file]]);
          assert.deepEqual(new Map(found as []), new Map(wanted as []));
        },
      ),
    ));

  it("a zip archive keeps compressed files as they are", () => {
    const text = Buffer.from("again and ".repeat(500));
    const file = { deflated: deflateRawSync(text), crc: crc32(text), size: text.length };
    const files = { "a.txt": contents, "b.txt": file, "c.txt": contents };
    const archive = zip(files);
    assert.ok(archive.length < 1000);
    const found = readOwnZip(archive) ?? {};
    assert.deepEqual(found, files);
    assert.deepEqual(zip(found), archive);
    assert.deepEqual(
      Object.values(found).map((file) => String(getInflatedContents(file))),
      [contents, text, contents].map(String),
    );
  });

  it("a zip archive is not read if it is damaged or another program made it", () => {
    for (const archive of [
      Buffer.alloc(0),
      Buffer.from("PK"),
      bytes.subarray(0, -1),
      bytes.subarray(1),
      Buffer.alloc(99),
    ])
      assert.equal(readOwnZip(archive), undefined);
    // Bytes of flags, method, checksum, size, the lengths of name and extra field, the name, and the archive's end.
    for (const position of [6, 8, 14, 18, 26, 28, 35, end]) {
      const broken = Buffer.from(bytes);
      broken[position] = (broken[position] ?? 0) ^ 1;
      assert.equal(readOwnZip(broken), undefined, `a bit of byte ${position}`);
    }
  });
});
