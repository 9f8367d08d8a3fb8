import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { crc32 } from "node:zlib";
import { zip } from "./zip.ts";

describe("zip", () => {
  const contents = Buffer.from("module.exports = 1;\n");
  const bytes = zip("index.cjs", contents);
  const end = bytes.length - 22;
  const directory = bytes.readUInt32LE(end + 16);

  it("ends with a directory of one file, which says where the file is", () => {
    assert.equal(bytes.readUInt32LE(end), 0x06054b50);
    assert.equal(bytes.readUInt16LE(end + 10), 1);
    assert.equal(bytes.readUInt32LE(end + 12), end - directory);
    assert.equal(bytes.readUInt32LE(directory), 0x02014b50);
    assert.equal(bytes.readUInt32LE(directory + 42), 0);
    assert.equal(bytes.toString("utf8", directory + 46, end), "index.cjs");
  });

  it("stores the file as it is, with its checksum, readable for all", () => {
    for (const header of [14, directory + 16]) assert.equal(bytes.readUInt32LE(header), crc32(contents));
    assert.equal(bytes.readUInt32LE(directory + 38) >>> 16, 0o100644);
    assert.equal(bytes.subarray(30 + "index.cjs".length, directory).toString(), String(contents));
  });

  it("has the same bytes every time", () => assert.deepEqual(zip("index.cjs", contents), bytes));
});
