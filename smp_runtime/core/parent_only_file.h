// SPDX-License-Identifier: Apache-2.0
// File descriptors that a forked child gives up at once.
#pragma once

namespace smp {

/// While it is there, every child that this process forks closes its copy of `file`: the other end
/// of a connection is to see that this process ends, though a child of it lives on. In the child
/// the number stays taken, by /dev/null, so that nobody closes another file by it. (Programs that a
/// child executes never see what is marked close-on-exec.) The number stays open for longer than
/// this object.
class ParentOnlyFile {
 public:
  explicit ParentOnlyFile(int file);
  ~ParentOnlyFile();
  ParentOnlyFile(const ParentOnlyFile&) = delete;
  ParentOnlyFile& operator=(const ParentOnlyFile&) = delete;

 private:
  int file_;
};

}  // namespace smp
