import { rmSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

// Not by after(): at the top of a file that awaits anything, Node may run it before the tests.
const folders: string[] = [];
process.on("exit", () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** Creates an empty folder, which is deleted when the tests of this process have ended. */
export const createTestFolder = async (): Promise<string> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-test-"));
  folders.push(folder);
  return folder;
};
